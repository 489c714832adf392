#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/function_ref.h>
#include <tandem/core/intrusive.h>
#include <tandem/core/thread_state.h>

namespace tandem::core {
namespace {

TEST(ThreadState, StartsPlain) {
  ThreadState fresh;
  std::jthread([&] { fresh = thread_state(); }).join();
  EXPECT_EQ(fresh.device, Device());
  EXPECT_TRUE(fresh.grad_enabled);
  EXPECT_EQ(fresh.generator, nullptr);
  EXPECT_EQ(fresh.scope, nullptr);
  EXPECT_EQ(fresh.frame, nullptr);
  EXPECT_EQ(fresh.observer, nullptr);
}

TEST(ThreadState, IsTheThreadsOwn) {
  ThreadState state = thread_state();
  state.grad_enabled = false;
  const ThreadStateScope scope(state);
  bool other = false;
  std::jthread([&] { other = thread_state().grad_enabled; }).join();
  EXPECT_TRUE(other);
  EXPECT_FALSE(thread_state().grad_enabled);
}

TEST(ThreadStateScope, PutsBackWhatWasThere) {
  const Device before = thread_state().device;
  {
    ThreadState state;
    state.device = Device("cpu:1");
    const ThreadStateScope outer(state);
    EXPECT_EQ(thread_state().device, Device("cpu:1"));
    {
      state.device = Device("cpu:2");
      state.grad_enabled = false;
      const ThreadStateScope inner(state);
      EXPECT_EQ(thread_state().device, Device("cpu:2"));
      thread_state().device = Device("cpu:7");  // the scope's end undoes this change
    }
    EXPECT_EQ(thread_state().device, Device("cpu:1"));
    EXPECT_TRUE(thread_state().grad_enabled);
  }
  EXPECT_EQ(thread_state().device, before);
}

TEST(ThreadStateScope, PutsBackAfterAnException) {
  try {
    ThreadState state;
    state.grad_enabled = false;
    const ThreadStateScope scope(state);
    throw Error("out");
  } catch (const Error&) {
    EXPECT_TRUE(thread_state().grad_enabled);
  }
}

std::string prefix_in(const char* type, const char* path, const char* op) {
  const ModuleScope module{path, type, nullptr};
  ThreadState state = thread_state();
  state.scope = &module;
  const ThreadStateScope scope(state);
  return message_prefix(op);
}

TEST(MessagePrefix, NamesModuleAndOp) {
  EXPECT_EQ(message_prefix("matmul"), "matmul: ");
  EXPECT_EQ(prefix_in("Encoder", "encoder.0", "matmul"), "Encoder 'encoder.0': matmul: ");
  EXPECT_EQ(prefix_in("Mlp", "", "matmul"), "Mlp: matmul: ");
}

TEST(MessagePrefix, DoesNotSayLinearTwice) {
  EXPECT_EQ(prefix_in("Linear", "fc1", "linear"), "Linear 'fc1': ");
  EXPECT_EQ(prefix_in("Linear", "", "linear"), "Linear: ");
  EXPECT_EQ(prefix_in("Linear", "fc1", "add"), "Linear 'fc1': add: ");
}

struct Counted : RefCounted {
  explicit Counted(int& alive) : alive_(alive) { ++alive_; }
  ~Counted() { --alive_; }
  static void destroy(const Counted* object) { delete object; }
  int& alive_;
};

TEST(Ref, DestroysTheObjectWithItsLastOwner) {
  int alive = 0;
  {
    Ref<Counted> first(new Counted(alive));
    EXPECT_TRUE(first->is_unique());
    Ref<Counted> second = first;
    EXPECT_FALSE(first->is_unique());
    EXPECT_EQ(first, second);
    first.reset();
    EXPECT_EQ(alive, 1);
    EXPECT_TRUE(second->is_unique());
    EXPECT_FALSE(static_cast<bool>(first));
  }
  EXPECT_EQ(alive, 0);
}

TEST(Ref, SurvivesAssignmentToItself) {
  int alive = 0;
  Ref<Counted> ref(new Counted(alive));
  Ref<Counted>& same = ref;
  ref = same;
  EXPECT_EQ(alive, 1);
  ref = std::move(same);
  EXPECT_EQ(alive, 1);
  ref = nullptr;
  EXPECT_EQ(alive, 0);
}

TEST(Ref, MovesAndAdoptsWithoutCounting) {
  int alive = 0;
  Ref<Counted> first(new Counted(alive));
  Ref<Counted> second = std::move(first);
  EXPECT_FALSE(static_cast<bool>(first));  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(second->is_unique());
  Ref<Counted> third = Ref<Counted>::adopt(second.release());
  EXPECT_TRUE(third->is_unique());
  third.reset();
  EXPECT_EQ(alive, 0);
}

TEST(Ref, IsCountedAcrossThreads) {
  int alive = 0;
  Ref<Counted> shared(new Counted(alive));
  {
    std::jthread threads[4];
    for (std::jthread& thread : threads) {
      thread = std::jthread([copy = shared] {
        for (int i = 0; i < 1000; ++i) {
          const Ref<Counted> mine = copy;
        }
      });
    }
    shared.reset();
  }
  EXPECT_EQ(alive, 0);
}

TEST(FunctionRef, CallsWhatItBorrows) {
  int calls = 0;
  const auto add = [&](int by) { return calls += by; };
  const FunctionRef<int(int)> ref = add;
  EXPECT_EQ(ref(3), 3);
  const FunctionRef<int(int)> copy = ref;
  EXPECT_EQ(copy(4), 7);
  EXPECT_EQ(calls, 7);
}

}  // namespace
}  // namespace tandem::core

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/fill.h>
#include <tandem/kernels/scratch.h>
#include <tandem/tensor/factories.h>

#include "kernels/recorder.h"
#include "support/message.h"

namespace tandem::kernels {
namespace {

using test::ObserverScope;
using test::Recorder;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Fill fill_of(std::vector<float>& out, double value) {
  return {.dtype = DType::f32,
          .loop = {1, {static_cast<std::int64_t>(out.size())}},
          .out = {out.data(), {1}},
          .value = value};
}

TEST(Launch, RunsTheKernelWithAndWithoutAnObserver) {
  std::vector<float> out(3);
  launch(context_for(Device()), fill_of(out, 1));
  EXPECT_EQ(out, (std::vector<float>{1, 1, 1}));
  Recorder recorder;
  const ObserverScope scope(&recorder);
  launch(context_for(Device()), fill_of(out, 2));
  EXPECT_EQ(out, (std::vector<float>{2, 2, 2}));
  EXPECT_THAT(recorder.names(), ElementsAre("fill"));
}

TEST(Launch, ObserverIsToldBeforeTheKernelRuns) {
  struct Peek final : LaunchObserver {
    void on_launch(Context&, const LaunchRecord& record) override {
      seen = *static_cast<const Fill*>(record.args)->out.as<float>();
      bytes = record.args_bytes;
    }
    float seen = -1;
    std::size_t bytes = 0;
  } peek;
  std::vector<float> out(1, 7.0f);
  const ObserverScope scope(&peek);
  launch(context_for(Device()), fill_of(out, 2));
  EXPECT_EQ(peek.seen, 7);
  EXPECT_EQ(peek.bytes, sizeof(Fill));
}

TEST(Launch, ACopyOfTheArgumentsRunsTheKernelAgain) {
  Recorder recorder;
  std::vector<float> out(2);
  {
    const ObserverScope scope(&recorder);
    launch(context_for(Device()), fill_of(out, 3));
  }
  out = {0, 0};
  recorder.replay();
  EXPECT_EQ(out, (std::vector<float>{3, 3}));
  EXPECT_EQ(recorder.launches().size(), 1u) << "a replay is not observed when nobody observes";
}

TEST(Launch, AnExceptionOfTheObserverStopsTheLaunch) {
  struct Refuse final : LaunchObserver {
    void on_launch(Context&, const LaunchRecord&) override { throw ConfigError("cannot be captured"); }
  } refuse;
  std::vector<float> out(1, 7.0f);
  const ObserverScope scope(&refuse);
  EXPECT_THROW(launch(context_for(Device()), fill_of(out, 2)), ConfigError);
  EXPECT_EQ(out[0], 7);
}

TEST(Launch, ObserversSeeTheirThreadAlone) {
  Recorder mine;
  const ObserverScope scope(&mine);
  std::jthread([] { zeros({3}); }).join();
  EXPECT_THAT(mine.names(), IsEmpty());
  std::jthread([state = core::thread_state()] {  // carries this thread's state
    const core::ThreadStateScope carried(state);
    zeros({3});
  })
      .join();
  EXPECT_THAT(mine.names(), ElementsAre("fill"));
}

TEST(Launch, TensorOpsPassThroughIt) {
  const Tensor x = rand({4, 5});
  const Tensor y = rand({5});
  Recorder recorder;
  const ObserverScope scope(&recorder);
  const Tensor sum = (x + y).sum();
  EXPECT_THAT(recorder.names(), ElementsAre("pointwise", "reduce"));
}

TEST(Launch, EmptyResultsNeedNone) {
  const Tensor x = empty({0, 5});
  Recorder recorder;
  const ObserverScope scope(&recorder);
  const Tensor sum = x + x;
  zeros({3, 0});
  x.clone();
  EXPECT_THAT(recorder.names(), IsEmpty());
}

// In a backward pass each device works on a lane of its own. The observer sees all lanes.
TEST(Launch, BackwardOnSeveralDevicesIsSeenWhole) {
  Tensor a = rand({3}, {.device = "cpu:0"});
  Tensor b = rand({3}, {.device = "cpu:1"});
  a.requires_grad_();
  b.requires_grad_();
  const Tensor loss = (a * 2.0).to("cpu:1").exp().sum() + (b * b).sum();
  Recorder recorder;
  {
    const ObserverScope scope(&recorder);
    loss.backward();
  }
  std::vector<std::string> devices;
  for (const auto& launch : recorder.launches())
    devices.push_back(to_string(launch.device));
  EXPECT_THAT(devices, Contains("cpu:0"));
  EXPECT_THAT(devices, Contains("cpu:1"));
}

TEST(ContextFor, IsOnePerThreadAndDevice) {
  Context* first = &context_for("cpu:0");
  Context* second = &context_for("cpu:1");
  EXPECT_NE(first, second);
  EXPECT_EQ(first, &context_for("cpu:0"));
  EXPECT_EQ(second, &context_for("cpu:1"));
  EXPECT_EQ(second->device, Device("cpu:1"));
  Context* elsewhere = nullptr;
  std::jthread([&] {
    elsewhere = &context_for("cpu:0");
    EXPECT_EQ(elsewhere->device, Device());
  }).join();
  EXPECT_NE(first, elsewhere);
}

// Objects of a thread are destroyed in reverse order of construction: this one after the contexts.
TEST(ContextFor, WorksWhileItsThreadEnds) {
  static double sum = 0;
  struct ComputesAtTheEnd {
    ~ComputesAtTheEnd() { sum = ones({3}).sum().item(); }
  };
  std::jthread([] {
    thread_local ComputesAtTheEnd last;
    (void)&last;
    (ones({2}) + 1.0).sum();
  }).join();
  EXPECT_EQ(sum, 3);
}

bool aligned(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % 64 == 0; }

TEST(ScratchArena, GivesAlignedDisjointMemory) {
  ScratchArena arena;
  const ScratchScope scope(arena);
  std::vector<std::pair<char*, std::size_t>> blocks;
  for (const std::size_t bytes : {1u, 64u, 65u, 1000u, 100'000u, 7u, 1'000'000u}) {
    auto* memory = static_cast<char*>(arena.allocate(bytes));
    EXPECT_TRUE(aligned(memory));
    std::fill_n(memory, bytes, static_cast<char>(blocks.size()));
    blocks.emplace_back(memory, bytes);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto [memory, bytes] = blocks[i];
    EXPECT_EQ(std::count(memory, memory + bytes, static_cast<char>(i)), static_cast<std::ptrdiff_t>(bytes));
  }
}

TEST(ScratchArena, ScopesGiveMemoryBackInOrder) {
  ScratchArena arena;
  void* first = nullptr;
  {
    const ScratchScope outer(arena);
    first = arena.allocate(100);
    void* second = nullptr;
    {
      const ScratchScope inner(arena);
      second = arena.allocate(100);
      EXPECT_NE(first, second);
      arena.allocate(10'000'000);
    }
    EXPECT_EQ(arena.allocate(100), second);
  }
  const ScratchScope again(arena);
  EXPECT_EQ(arena.allocate(100), first) << "a warm kernel asks for nothing new";
}

TEST(ScratchArena, HasACeiling) {
  ScratchArena arena;
  const ScratchScope scope(arena);
  EXPECT_EQ(test::message_of<OutOfMemory>([&] { arena.allocate(ScratchArena::kCeiling + 1); }),
            "kernel workspace: asked for 268435457 bytes, the ceiling is 268435456");
  EXPECT_THROW(arena.allocate(~std::size_t{0}), OutOfMemory);
  EXPECT_NE(arena.allocate(1000), nullptr) << "usable after an error";
}

TEST(ScratchArena, SumsStayBelowTheCeiling) {
  ScratchArena arena;
  const ScratchScope scope(arena);
  constexpr std::size_t kPart = ScratchArena::kCeiling / 4 - 64;
  for (int i = 0; i < 3; ++i)
    EXPECT_NE(arena.allocate(kPart), nullptr) << i;
  EXPECT_THROW(arena.allocate(2 * kPart), OutOfMemory);
}

// Memory left by earlier, smaller kernels must not block a kernel that needs all of it.
TEST(ScratchArena, TheWholeCeilingCanBeHadAfterSmallerUse) {
  ScratchArena arena;
  {
    const ScratchScope scope(arena);
    arena.allocate(1000);
    arena.allocate(100'000);
  }
  const ScratchScope scope(arena);
  EXPECT_NE(arena.allocate(ScratchArena::kCeiling), nullptr);
}

}  // namespace
}  // namespace tandem::kernels

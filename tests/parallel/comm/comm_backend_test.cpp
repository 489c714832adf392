#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "support/message.h"

// The calls that ProcessGroup makes to a backend.

namespace tandem::parallel {
namespace {

using test::message_of;

// One rank of two, with a scripted peer.
class ScriptedBackend final : public Backend {
 public:
  struct Script {
    std::vector<std::string> asked;  // names of the calls, in order
    Collective peers;                // the peer's next call, if `peer_differs`
    bool peer_differs = false;
    std::string broken;                 // run() throws it
    std::chrono::milliseconds takes{};  // time of run()
    CallTime time;                      // of the latest run()
    std::string aborted;
  };
  explicit ScriptedBackend(std::shared_ptr<Script> script) : script_(std::move(script)) {}

  std::string_view name() const noexcept override { return "scripted"; }
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 2; }
  std::string refusal(const Collective& call) const override {
    return call.dtype == DType::f16 ? "f16 is not carried; convert with .to(DType::f32)" : "";
  }
  void exchange(const Collective& mine, std::span<Collective> all, const CallTime&) override {
    script_->asked.push_back("exchange");
    all[0] = mine;
    all[1] = script_->peer_differs ? script_->peers : mine;
  }
  void run(const Collective& call, const Buffers& buffers, const CallTime& time) override {
    EXPECT_GT(time.deadline, time.start);
    script_->asked.push_back(to_string(call));
    script_->time = time;
    std::this_thread::sleep_for(script_->takes);
    if (!script_->broken.empty()) {
      throw std::runtime_error(script_->broken);
    }
    if (call.kind == CollectiveKind::all_reduce) {  // the peer has equal values
      EXPECT_EQ(buffers.in, buffers.out);
      auto* values = static_cast<float*>(buffers.out);
      std::transform(values, values + buffers.numel, values, [](float value) { return 2 * value; });
    }
  }
  std::unique_ptr<Backend> split(std::span<const int>, const CallTime&) override { return nullptr; }
  void abort(const CommError& cause) noexcept override { script_->aborted = cause.what(); }

 private:
  std::shared_ptr<Script> script_;
};

struct ScriptedGroup {
  std::shared_ptr<ScriptedBackend::Script> script = std::make_shared<ScriptedBackend::Script>();
  ProcessGroup group{std::make_unique<ScriptedBackend>(script)};
};

TEST(Backend, ComparesEachCallBeforeItRunsAndAPlanOnlyOnce) {
  ScriptedGroup pair;
  const Tensor tensor = ones({2, 3});
  pair.group.all_reduce(tensor.t());
  EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(6, 2));
  pair.group.barrier(true).wait();
  pair.group.send(tensor, 1, 4);
  PlannedCollective plan = pair.group.plan_all_reduce(tensor.raw());
  plan.run();
  plan.start();
  plan.wait();
  EXPECT_EQ(tensor[0][0].item(), 8);
  EXPECT_EQ(pair.script->asked, (std::vector<std::string>{"exchange", "all_reduce f32 [3, 2] sum (#0)", "exchange",
                                                          "barrier (#1)", "send f32 [2, 3] to 1, tag 4", "exchange",
                                                          "planned all_reduce f32 [2, 3] sum of plan #2 (#3)",
                                                          "planned all_reduce f32 [2, 3] sum of plan #2 (#4)"}));
}

// Afterwards the second call is as usual, so its line would come ten times as late.
TEST(Backend, IsToldWhenAWaitIsUnusuallyLong) {
  using namespace std::chrono_literals;
  ScriptedGroup pair;
  const auto quiet = [&] { return pair.script->time.line_due - pair.script->time.start; };
  pair.script->takes = 900ms;
  pair.group.all_reduce(ones({2}));
  EXPECT_GE(quiet(), 5s);
  EXPECT_LT(quiet(), 6s);
  EXPECT_EQ(pair.script->time.usual, 0s);
  pair.script->takes = 0ms;
  pair.group.all_reduce(ones({2}));
  EXPECT_GE(quiet(), 9s);
  EXPECT_GE(pair.script->time.usual, 900ms);
  pair.group.broadcast(ones({2}), 0);  // another kind
  EXPECT_LT(quiet(), 6s);
}

TEST(Backend, IsNotAskedForWhatItRefuses) {
  ScriptedGroup pair;
  EXPECT_EQ(message_of<ConfigError>([&] { pair.group.all_reduce(ones({2}, {.dtype = DType::f16})); }),
            "all_reduce: f16 is not carried; convert with .to(DType::f32)");
  EXPECT_TRUE(pair.script->asked.empty());
  pair.group.barrier();
}

TEST(Backend, LearnsOfAMismatchAndMovesNothing) {
  ScriptedGroup pair;
  pair.script->peer_differs = true;
  pair.script->peers = {.kind = CollectiveKind::barrier, .sequence = 0};
  const std::string text = message_of<CommError>([&] { pair.group.all_reduce(ones({4})); });
  EXPECT_EQ(text,
            "process group: its ranks made different calls, and none was carried out: rank 0: all_reduce f32 [4] sum "
            "(#0); rank 1: barrier (#0). All ranks of a group must make the same calls in the same order");
  EXPECT_EQ(pair.script->asked, std::vector<std::string>{"exchange"});
  EXPECT_EQ(test::without_code(pair.script->aborted), text);
}

TEST(Backend, FailingInItsOwnWayEndsTheGroup) {
  ScriptedGroup pair;
  pair.script->broken = "the cable was cut";
  EXPECT_EQ(message_of<CommError>([&] { pair.group.barrier(); }), "barrier (#0): failed on rank 0: the cable was cut");
  EXPECT_EQ(pair.script->aborted, "barrier (#0): failed on rank 0: the cable was cut");
  pair.script->broken.clear();
  EXPECT_EQ(
      message_of<CommError>([&] { pair.group.barrier(); }),
      "barrier (#1): the process group can no longer be used, since this happened: barrier (#0): failed on rank 0: "
      "the cable was cut");
}

}  // namespace
}  // namespace tandem::parallel

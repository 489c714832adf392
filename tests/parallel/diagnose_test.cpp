#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "models.h"

namespace tandem::parallel {
namespace {

using test::Mlp;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

void spend(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

void spend(Phase phase, int milliseconds) {
  const PhaseScope timed(phase);
  spend(milliseconds);
}

/// What is said of two steps of `body`.
std::string text_of(const std::function<void()>& body) {
  Mlp model = test::seeded<Mlp>();
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  const StepTimes times;
  for (int step = 0; step < 2; ++step) {
    body();
    sgd.step();
  }
  return diagnose(times);
}

TEST(Diagnose, WaitingForTheLoaderIsSaid) {
  struct Slow final : data::Dataset {
    std::int64_t size() const override { return 4; }
    data::Example get(std::int64_t) const override {
      spend(20);
      return {.x = zeros({6}, {.dtype = DType::f64}), .y = {}};
    }
  };
  Mlp model = test::seeded<Mlp>();
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  const Slow slow;
  data::DataLoader loader(slow, {.batch_size = 2});
  const StepTimes times;
  for (const auto& [x, y] : loader) {
    model(x).sum().backward();
    sgd.step();
  }
  EXPECT_THAT(diagnose(times), AllOf(StartsWith("2 steps, "), HasSubstr("\n  input  "), HasSubstr("\n  backward  "),
                                     HasSubstr("\n  optimizer "), HasSubstr("% of a step waits for the DataLoader")));
}

TEST(Diagnose, OfDataParallelIsItsCopying) {
  EXPECT_THAT(text_of([] {
                spend(Phase::replicate, 5);
                spend(Phase::forward, 2);
                spend(Phase::gather, 5);
              }),
              HasSubstr("% of a step is DataParallel's copying to and from its first device"));
}

TEST(Diagnose, OfAReductionThatNothingHidesSaysHowToMakeItLess) {
  EXPECT_THAT(text_of([] { spend(Phase::reduce, 10); }),
              AllOf(HasSubstr("waits for the reduction of gradients, beyond what the backward pass hides"),
                    HasSubstr("bf16_compress_hook()"), Not(HasSubstr("DataParallel's copying"))));
}

TEST(Diagnose, OfAStepThatOnlyComputesSaysSo) {
  EXPECT_THAT(text_of([] { spend(Phase::forward, 300); }), HasSubstr("\nNearly all of it computes: "));
}

TEST(Diagnose, WithoutAStepSaysSo) {
  const StepTimes times;
  EXPECT_EQ(diagnose(times), "no step to diagnose: no optimiser has stepped since the StepTimes was made\n");
}

TEST(Diagnose, OfRanksNamesTheOneThatAllWaitFor) {
  std::vector<std::string> texts(3);
  spawn(3, [&](ProcessGroup& group) {
    Mlp model = test::seeded<Mlp>();
    DistributedDataParallel ddp(model);
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    const auto train = [&](auto& wrapped) {
      for (int step = 0; step < 5; ++step) {
        spend(group.rank() == 1 ? 60 : 1);
        sgd.zero_grad();
        wrapped(test::batch_of(4).x).sum().backward();
        sgd.step();
      }
    };
    StepTimes times;
    train(ddp);
    const std::string text = diagnose(times, group);
    texts[static_cast<std::size_t>(group.rank())] = text;
  });
  EXPECT_THAT(texts[0], AllOf(StartsWith("5 steps on each of 3 ranks, "), HasSubstr("\n  reduce "),
                              HasSubstr("save: all wait for rank 1, which is busy for ")));
  EXPECT_THAT(texts, Each(texts[0]));
}

TEST(Diagnose, OfAJoinNamesTheRankThatAllWaitFor) {
  spawn(2, [](ProcessGroup& group) {
    Mlp model = test::seeded<Mlp>();
    DistributedDataParallel ddp(model);
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    const StepTimes times;
    Join join(ddp);
    for (int step = 0; step < 5; ++step) {
      spend(group.rank() == 0 ? 60 : 1);
      sgd.zero_grad();
      ddp(test::batch_of(4).x).mean().backward();
      sgd.step();
    }
    join.finish([&] { sgd.step(); });
    EXPECT_THAT(diagnose(times, group), HasSubstr("save: all wait for rank 0, which is busy for "));
  });
}

TEST(StepTimes, OfARankThatIsAThreadAreItsOwn) {
  spawn(2, [](ProcessGroup& group) {
    const StepTimes times;
    spend(group.rank() == 0 ? Phase::forward : Phase::input, 1);
    group.barrier();
    EXPECT_EQ(times.seconds(Phase::forward) > 0, group.rank() == 0);
    EXPECT_EQ(times.seconds(Phase::input) > 0, group.rank() == 1);
  });
}

TEST(StepTimes, APhaseWithinTheSamePhaseCountsOnce) {
  const StepTimes times;
  {
    const PhaseScope outer(Phase::backward);
    spend(Phase::backward, 2);
  }
  EXPECT_LE(times.seconds(Phase::backward), times.elapsed());
  EXPECT_GE(times.seconds(Phase::backward), 2e-3);
}

}  // namespace
}  // namespace tandem::parallel

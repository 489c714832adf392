#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>
#include <tandem/telemetry/diagnosis.h>

#include "parallel/models.h"
#include "support/clock.h"
#include "support/message.h"

namespace tandem::parallel {
namespace {

using telemetry::RankSteps;
using test::Mlp;
using test::sleep_ms;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

void spend(Phase phase, int milliseconds) {
  const SpanScope timed(phase);
  sleep_ms(milliseconds);
}

TEST(Diagnose, WaitingForTheLoaderIsSaid) {
  struct Slow final : data::Dataset {
    std::int64_t size() const override { return 6; }
    data::Example get(std::int64_t) const override {
      sleep_ms(20);
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

/// The time of each phase, for a step of 1000 us.
using Phases = std::map<Phase, double>;

RankSteps rank_of(const Phases& phases, std::vector<double> waits = {}) {
  RankSteps rank{
      .count = 10, .step_us = 1000, .host = 1, .cores = 8, .threads = 8, .latency_us = 1, .waits = std::move(waits)};
  for (const auto& [phase, us] : phases) {
    rank.us[static_cast<std::size_t>(phase)] = us;
  }
  return rank;
}

std::string said_of(const std::vector<RankSteps>& ranks) { return telemetry::diagnosis(telemetry::Ranks(ranks)); }

TEST(Diagnose, OfDataParallelIsItsCopying) {
  EXPECT_THAT(
      said_of({rank_of({{Phase::replicate, 300}, {Phase::forward, 300}, {Phase::gather, 200}, {Phase::reduce, 200}})}),
      AllOf(StartsWith("10 steps, 1000 us each:\n"),
            HasSubstr("70 % of a step is DataParallel's copying to and from its first device")));
}

TEST(Diagnose, OfAReductionThatNothingHidesSaysHowToMakeItLess) {
  const RankSteps rank = rank_of({{Phase::forward, 500}, {Phase::reduce, 500}}, {500, 500});
  EXPECT_THAT(said_of({rank}),
              AllOf(HasSubstr("50 % of a step waits for other ranks, beyond what the backward pass hides"),
                    HasSubstr("bf16_compress_hook()"), HasSubstr("diagnose(times, group) on all of them tells"),
                    Not(HasSubstr("DataParallel's copying"))));
  EXPECT_THAT(said_of({rank, rank}), HasSubstr("save: 50 % of a step reduces gradients"));
}

// Models a loop that averages the weights in every second step.
TEST(Diagnose, OfAnExchangeNowAndThenIsTheExchange) {
  const RankSteps rank = rank_of({{Phase::forward, 500}, {Phase::collective, 500}}, {0, 1000, 0, 1000});
  EXPECT_THAT(said_of({rank, rank}),
              HasSubstr("save: 50 % of a step reduces gradients, or what the loop reduces itself"));
}

TEST(Diagnose, OfAPipelineIsItsBubble) {
  const RankSteps rank = rank_of({{Phase::forward, 600}, {Phase::pipeline, 400}}, {400, 400});
  for (const std::vector<RankSteps>& ranks : {std::vector<RankSteps>{rank}, {rank, rank}}) {
    EXPECT_THAT(said_of(ranks),
                AllOf(HasSubstr("\n  pipeline         400 us   40 %\n"),
                      HasSubstr("save: 40 % of a step waits for other stages of the pipeline and hands over: more "
                                "micro-batches make the schedule's part of it smaller")));
  }
}

TEST(Diagnose, OfAPipelineNamesTheStageThatHasMoreWork) {
  EXPECT_THAT(said_of({rank_of({{Phase::backward, 900}, {Phase::pipeline, 100}}, {100, 100}),
                       rank_of({{Phase::backward, 300}, {Phase::pipeline, 700}}, {700, 700})}),
              HasSubstr("save: all wait for rank 0, busy for 900 us of a step, where the quickest is for 300. It is "
                        "forward and backward that differ: its stage has more work (another split)"));
}

TEST(Diagnose, OfAStepThatOnlyComputesSaysSo) {
  EXPECT_THAT(said_of({rank_of({{Phase::forward, 500}, {Phase::backward, 480}})}),
              HasSubstr("\nNearly all of it computes: "));
}

// Models a custom loss on the host, post-processing, or metrics.
TEST(Diagnose, OfALoopThatDoesOtherThingsSaysSo) {
  EXPECT_THAT(said_of({rank_of({{Phase::forward, 200}})}),
              AllOf(HasSubstr("\n  the rest         800 us   80 %\n"),
                    HasSubstr("80 % of a step is none of these phases, but what the loop does itself")));
}

TEST(Diagnose, OfRanksSaysWhatTheSlowOneHasMoreOf) {
  for (const auto& [phase, text] :
       std::map<Phase, const char*>{{Phase::input, "It is their input that differs"},
                                    {Phase::backward, "It is forward and backward that differ"},
                                    {Phase::replay, "It is 'replay' that differs"},
                                    {Phase::gather, "It is 'gather' that differs"}}) {
    EXPECT_THAT(
        said_of({rank_of({{Phase::forward, 300}, {phase, 700}}, {0, 0}),
                 rank_of({{Phase::forward, 300}, {Phase::reduce, 700}}, {700, 700})}),
        AllOf(HasSubstr("save: all wait for rank 0, busy for 1000 us of a step, where the quickest is for 300. "),
              HasSubstr(text)));
  }
}

TEST(Diagnose, OfRanksNamesAllThatAreSlow) {
  const RankSteps slow = rank_of({{Phase::forward, 1000}}, {0, 0});
  EXPECT_THAT(said_of({rank_of({{Phase::forward, 200}, {Phase::reduce, 800}}, {800, 800}), slow, slow}),
              HasSubstr("save: all wait for ranks 1, 2, "));
}

// Sequence lengths vary from step to step, as with texts: on average all ranks are equally slow.
TEST(Diagnose, OfRanksThatAreSlowInTurnSaysSo) {
  const Phases phases{{Phase::forward, 500}, {Phase::reduce, 500}};
  EXPECT_THAT(said_of({rank_of(phases, {1000, 0, 1000, 0}), rank_of(phases, {0, 1000, 0, 1000})}),
              HasSubstr("in 50 % of a step ranks wait for each other, for one now and then for another"));
}

// A loader that all ranks wait for costs more than one rank that waits less for its loader and more for something else.
TEST(Diagnose, OfRanksComparesWhatCouldBeSaved) {
  const RankSteps most = rank_of({{Phase::input, 500}, {Phase::forward, 500}}, {0, 0});
  EXPECT_THAT(said_of({rank_of({{Phase::input, 450}, {Phase::reduce, 550}}, {550, 550}), most, most, most}),
              HasSubstr("save: 50 % of a step waits for the DataLoader"));
}

// DataParallel within a rank counts as part of that rank's work.
TEST(Diagnose, OfRanksWithDataParallelNamesTheOneThatAllWaitFor) {
  EXPECT_THAT(said_of({rank_of({{Phase::gather, 10}, {Phase::forward, 190}, {Phase::reduce, 800}}, {800, 800}),
                       rank_of({{Phase::gather, 10}, {Phase::forward, 990}}, {0, 0})}),
              HasSubstr("save: all wait for rank 1, "));
}

TEST(Diagnose, OfMoreRanksThanCoresSaysSo) {
  RankSteps rank = rank_of({{Phase::forward, 1000}}, {0});
  rank.cores = 2;
  EXPECT_THAT(said_of({rank, rank, rank}),
              HasSubstr("\n3 ranks share the 2 cores of a machine, and wait for them, too.\n"));
  EXPECT_THAT(said_of({rank, rank}), Not(HasSubstr("share")));
  RankSteps elsewhere = rank;
  elsewhere.host = 2;
  EXPECT_THAT(said_of({rank, rank, elsewhere}), Not(HasSubstr("share")));
}

TEST(Diagnose, OfACapturedStepIsItsReplay) {
  Mlp model = test::seeded<Mlp>();
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  auto step = graph::capture([&](const Tensor& x) {
    sgd.zero_grad();
    const Tensor loss = model(x).sum();
    loss.backward();
    sgd.step();
    return loss;
  });
  const Tensor x = test::batch_of(4).x;
  for (int i = 0; i < 4; ++i) {
    step(x);
  }
  const StepTimes times;
  for (int i = 0; i < 4; ++i) {
    step(x);
  }
  EXPECT_THAT(diagnose(times), AllOf(StartsWith("3 steps, "), HasSubstr("\n  replay ")));
}

// Time before the first step or after the last belongs to no step. The first step is slower and is left out too.
TEST(Diagnose, IsAboutWholeStepsAfterTheFirst) {
  Mlp model = test::seeded<Mlp>();
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  const StepTimes times;
  sleep_ms(50);
  for (int step = 0; step < 3; ++step) {
    spend(Phase::forward, step == 0 ? 50 : 1);
    sgd.step();
  }
  spend(Phase::input, 50);
  const StepSums sums = times.whole_steps();
  EXPECT_EQ(sums.count, 2);
  EXPECT_LT(sums.elapsed, times.elapsed() - 145e-3) << "neither before, nor the first, nor after";
  EXPECT_GE(sums.phases[static_cast<std::size_t>(Phase::forward)], 2e-3);
  EXPECT_EQ(sums.phases[static_cast<std::size_t>(Phase::input)], 0);
  EXPECT_EQ(times.steps(), 3);
  EXPECT_GE(times.seconds(Phase::input), 50e-3);
}

TEST(Diagnose, EvaluationIsNoForwardPassOfAStep) {
  const Mlp model = test::seeded<Mlp>();
  const StepTimes times;
  {
    const NoGradGuard no_grad;
    model(test::batch_of(4).x);
  }
  EXPECT_EQ(times.seconds(Phase::forward), 0);
  model(test::batch_of(4).x);
  EXPECT_GT(times.seconds(Phase::forward), 0);
}

TEST(Diagnose, OptimisersThatStepInTurnMakeOneStep) {
  Mlp model = test::seeded<Mlp>();
  std::vector<std::unique_ptr<optim::SGD>> each;
  for (const Tensor& parameter : model.parameters()) {
    each.push_back(std::make_unique<optim::SGD>(std::vector{parameter}, optim::SGDOptions{.lr = 0.1}));
  }
  const StepTimes times;
  for (int step = 0; step < 4; ++step) {
    for (const auto& sgd : each) {
      sgd->step();
    }
  }
  EXPECT_EQ(times.steps(), 4);
  EXPECT_THAT(diagnose(times), StartsWith("3 steps, "));
}

TEST(Diagnose, WithoutAStepSaysSo) {
  constexpr const char* kText = "no step to diagnose: no optimiser has stepped on the thread that made the StepTimes";
  const StepTimes times;
  EXPECT_THAT(diagnose(times), StartsWith(kText));
  spawn(2, [&](ProcessGroup& group) {
    Mlp model = test::seeded<Mlp>();
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    const StepTimes mine;
    if (group.rank() == 0) {
      sgd.step();
    }
    EXPECT_THAT(diagnose(mine, group), StartsWith("no step to diagnose on rank 1: no optimiser has stepped on the "));
  });
  EXPECT_THAT(diagnose(times), StartsWith(kText)) << "made on another thread than those that train";
}

/// Extra time that a rank of DistributedDataParallel spends beside its step.
using Spend = std::function<void(int rank, int step)>;

std::string text_of_ranks(int size, const Spend& before, const std::function<void(ProcessGroup&)>& after = {}) {
  std::vector<std::string> texts(static_cast<std::size_t>(size));
  spawn(size, [&](ProcessGroup& group) {
    Mlp model = test::seeded<Mlp>();
    DistributedDataParallel ddp(model);
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    const auto train = [&](auto& wrapped) {
      for (int step = 0; step < 6; ++step) {
        before(group.rank(), step);
        sgd.zero_grad();
        wrapped(test::batch_of(4).x).sum().backward();
        sgd.step();
        if (after) {
          after(group);
        }
      }
    };
    StepTimes times;
    train(ddp);
    const std::string text = diagnose(times, group);
    texts[static_cast<std::size_t>(group.rank())] = text;
  });
  EXPECT_THAT(texts, Each(texts[0]));
  return texts[0];
}

TEST(Diagnose, OfRanksNamesTheOneThatAllWaitFor) {
  EXPECT_THAT(
      text_of_ranks(3, [](int rank, int) { sleep_ms(rank == 1 ? 60 : 1); }),
      AllOf(StartsWith("5 steps on each of 3 ranks, "), HasSubstr("\n  reduce "),
            HasSubstr("save: all wait for rank 1, busy for "), HasSubstr("work that is done on one rank alone")));
}

// Ranks that wait for a rank that writes a checkpoint wait in the loop's own barrier.
TEST(Diagnose, OfRanksSeesWaitingInTheLoopsOwnCollectives) {
  const auto save = [](ProcessGroup& group) {
    if (group.rank() == 0) {
      sleep_ms(40);
    }
    group.barrier();
  };
  EXPECT_THAT(text_of_ranks(
                  2, [](int, int) {}, save),
              AllOf(HasSubstr("\n  collective "), HasSubstr("save: all wait for rank 0, busy for ")));
}

TEST(Diagnose, ThatOneRankCallsAloneIsAnErrorThatNamesIt) {
  std::string text;
  EXPECT_THROW(spawn(2,
                     [&](ProcessGroup& group) {
                       const StepTimes times;
                       if (group.rank() == 0) {
                         text = test::message_of<CommError>([&] { diagnose(times, group); });
                         throw ConfigError("seen");
                       }
                       group.barrier();
                     }),
               Error);
  EXPECT_THAT(text, HasSubstr("in parallel::diagnose(times, group), which all ranks of the group must call"));
}

TEST(Diagnose, OfAJoinNamesTheRankThatAllWaitFor) {
  spawn(2, [](ProcessGroup& group) {
    Mlp model = test::seeded<Mlp>();
    DistributedDataParallel ddp(model);
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    const StepTimes times;
    Join join(ddp);
    for (int step = 0; step < 5; ++step) {
      sleep_ms(group.rank() == 0 ? 60 : 1);
      sgd.zero_grad();
      ddp(test::batch_of(4).x).mean().backward();
      sgd.step();
    }
    join.finish([&] { sgd.step(); });
    EXPECT_THAT(diagnose(times, group), HasSubstr("save: all wait for rank 0, busy for "));
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
    const SpanScope outer(Phase::backward);
    spend(Phase::backward, 2);
  }
  EXPECT_LE(times.seconds(Phase::backward), times.elapsed());
  EXPECT_GE(times.seconds(Phase::backward), 2e-3);
}

TEST(StepTimes, OutlivesItsThread) {
  std::unique_ptr<StepTimes> times;
  std::thread([&] {
    times = std::make_unique<StepTimes>();
    spend(Phase::forward, 2);
  }).join();
  EXPECT_GE(times->seconds(Phase::forward), 2e-3);
}

// Other threads may run loaders or unrelated computations beside the training.
TEST(StepTimes, OfOtherThreadsAreNotItsOwn) {
  const StepTimes times;
  std::thread([] { spend(Phase::input, 2); }).join();
  EXPECT_EQ(times.seconds(Phase::input), 0);
}

TEST(StepTimes, APhaseThatEndsOnAnotherThreadIsNotCounted) {
  std::thread([] {  // a fresh thread, which no other test uses
    const StepTimes times;
    auto scope = std::make_unique<SpanScope>(Phase::gather);
    std::thread([&] {
      const StepTimes others;
      scope.reset();
      EXPECT_EQ(others.seconds(Phase::gather), 0);
    }).join();
    spend(Phase::forward, 1);
    EXPECT_EQ(times.seconds(Phase::gather), 0);
    EXPECT_GE(times.seconds(Phase::forward), 1e-3);
  })
      .join();
}

TEST(StepTimes, APhaseThatEndsBeforeOneWithinItEndsThat) {
  const StepTimes times;
  auto outer = std::make_unique<SpanScope>(Phase::backward);
  auto inner = std::make_unique<SpanScope>(Phase::reduce);
  sleep_ms(2);
  outer.reset();
  inner.reset();
  EXPECT_GE(times.seconds(Phase::reduce), 2e-3);
  EXPECT_LE(times.seconds(Phase::backward) + times.seconds(Phase::reduce), times.elapsed());
}

TEST(StepTimes, APhaseThatIsOpenAlreadyCountsFromThenOn) {
  const SpanScope nobody_collects(Phase::gather);
  StepTimes outer;
  std::optional<SpanScope> phase(Phase::backward);
  const SpanScope within(Phase::reduce);
  sleep_ms(20);
  const StepTimes times;
  sleep_ms(1);
  phase.reset();
  EXPECT_LE(times.seconds(Phase::backward), times.elapsed());
  EXPECT_GE(times.seconds(Phase::reduce), 1e-3);
  EXPECT_GE(outer.seconds(Phase::reduce), 20e-3);
}

}  // namespace
}  // namespace tandem::parallel

#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/peak_place.h>
#include <tandem/tandem.h>
#include <tandem/telemetry/diagnosis.h>

#include "parallel/models.h"
#include "support/clock.h"

namespace tandem::parallel {
namespace {

using telemetry::Brake;
using telemetry::Cause;
using telemetry::Ranks;
using telemetry::RankSteps;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// A rank of a machine with 2 cores, whose step of 1000 us is forward and backward.
struct Rank {
  RankSteps steps{.count = 10, .step_us = 1000, .host = 1, .cores = 2, .threads = 2, .latency_us = 5, .waits = {0}};

  Rank& set(Phase phase, double us) {
    steps.us[static_cast<std::size_t>(phase)] = us;
    return *this;
  }
  Rank& set(Fact fact, double value) {
    steps.facts[static_cast<std::size_t>(fact)] = value;
    return *this;
  }
  Rank& set(Effort effort, double us, double bytes = 0) {
    steps.efforts[static_cast<std::size_t>(effort)] = {.count = 1, .seconds = us, .bytes = bytes};
    return *this;
  }
  Rank& wait(double us) {
    set(Phase::reduce, us);
    steps.waits = {us};
    return *this;
  }
};

Rank computing(double us) { return Rank().set(Phase::forward, us / 3).set(Phase::backward, us * 2 / 3); }

Cause first_of(std::initializer_list<Rank> ranks) {
  std::vector<RankSteps> steps;
  for (const Rank& rank : ranks) {
    steps.push_back(rank.steps);
  }
  return telemetry::causes_of(Ranks(std::move(steps))).front();
}

constexpr double kMib = 1 << 20;

/// A rank that exchanges gradients over a network.
Rank networked(double computes, double buckets, double mib) {
  return computing(computes)
      .wait(1000 - computes)
      .set(Fact::buckets, buckets)
      .set(Fact::gradient_bytes, mib * kMib)
      .set(Effort::exchange, 1000 - computes, mib * kMib);
}

TEST(Verdict, NamesEachBrakeFirstWithItsGain) {
  const auto expect = [](Brake brake, double gain, std::initializer_list<Rank> ranks) {
    const Cause first = first_of(ranks);
    EXPECT_EQ(name_of(first.brake), name_of(brake)) << first.text;
    EXPECT_NEAR(first.gain, gain, 0.01) << name_of(brake);
  };
  const Rank loads = computing(500).set(Phase::input, 500);
  expect(Brake::loader, 2, {loads, loads});
  expect(Brake::slow_rank, 1000.0 / 400, {computing(400).wait(600), computing(400)});
  expect(Brake::bound_cores, 2, {[&] {
           Rank rank = computing(1000);
           rank.steps.is_process = 1;
           rank.steps.bound_to = {1, 0};
           return rank;
         }()});
  expect(Brake::data_parallel, 1000.0 / (1000 - 150 - 50),
         {computing(750)
              .set(Phase::gather, 150)
              .set(Fact::devices, 2)
              .set(Effort::backward_here, 300)
              .set(Effort::backward_beside, 200)
              .set(Phase::optimizer, 100)});
  expect(Brake::link, 1000.0 / (1000 - 350), {networked(300, 3, 8), networked(300, 3, 8)});
  expect(Brake::loop, 2.5, {computing(400), computing(400)});
  expect(Brake::idle_cores, 2, {[&] {
           Rank rank = computing(1000);
           rank.steps.threads = 1;
           return rank;
         }()});
  const auto staged = [&](double imbalance, double batches) {
    Rank rank = computing(600).set(Fact::stages, 2).set(Fact::microbatches, batches).set(Fact::imbalance, imbalance);
    rank.set(Phase::pipeline, 400);
    rank.steps.waits = {400};
    return rank;
  };
  expect(Brake::unequal_stages, 1000.0 / 650, {staged(0.35, 32)});
  expect(Brake::bubble, (8.0 / 9) / (2.0 / 3), {staged(0, 2)});
  expect(Brake::reads, 2, {computing(500).set(Effort::read, 500), computing(500).set(Effort::read, 500)});
  expect(Brake::allocations, 1.25, {computing(1000).set(Effort::allocation, 200)});
  const auto updates = [&](double rows) {
    return computing(600)
        .set(Phase::optimizer, 400)
        .set(Fact::buckets, 1)
        .set(Fact::rows, rows)
        .set(Fact::shares_memory, 1);
  };
  expect(Brake::optimizer_by_all, 1.25, {updates(64), updates(64)});
  expect(Brake::tiny_batch, 4000.0 / (1000 + 3 * 600), {updates(4), updates(4)});
}

TEST(Verdict, OfBucketsSaysWhetherTheyAreTooSmallOrTooLarge) {
  Rank small = networked(300, 20, 1);
  small.steps.latency_us = 30;
  EXPECT_EQ(first_of({small, small}).brake, Brake::small_buckets);
  EXPECT_THAT(first_of({small, small}).text, HasSubstr("1.0 MiB travel in 20 pieces, each of which takes 30 us"));
  const Rank large = networked(600, 1, 16);
  EXPECT_EQ(first_of({large, large}).brake, Brake::large_buckets);
  EXPECT_THAT(first_of({large, large}).text, HasSubstr("16.0 MiB of gradients leave in 1 piece"));
  const Rank in_memory = networked(600, 1, 16).set(Fact::shares_memory, 1);
  EXPECT_EQ(first_of({in_memory, in_memory}).brake, Brake::link);
}

TEST(Verdict, OfPartsOfParametersIsTheirGather) {
  const Rank rank = networked(500, 8, 8)
                        .set(Effort::unshard, 450)
                        .set(Effort::all_gather, 450, 8 * kMib)
                        .set(Fact::shards_updates, 1);
  const Cause first = first_of({rank, rank});
  EXPECT_EQ(first.brake, Brake::unshard);
  EXPECT_NEAR(first.gain, 1000.0 / (1000 - 225), 0.01) << "one gather of two is left";
}

TEST(Verdict, OfWorkThatOneRankDoesInTurnTakesItAwayAndTheWaiting) {
  Rank first = computing(400).wait(300);
  Rank second = first;
  first.steps.waits = {600, 0};
  second.steps.waits = {0, 600};
  const Cause cause = first_of({first, second});
  EXPECT_EQ(cause.brake, Brake::ranks_in_turn);
  EXPECT_NEAR(cause.gain, 1000.0 / 400, 0.01) << "300 us of waiting, and 300 that the others wait for";
}

TEST(Verdict, OfAHealthyStepIsSilence) {
  const Rank rank = computing(930).wait(70).set(Fact::buckets, 1).set(Fact::rows, 256);
  EXPECT_THAT(telemetry::verdict(Ranks({rank.steps, rank.steps})), IsEmpty());
  EXPECT_THAT(telemetry::verdict(Ranks({RankSteps(), rank.steps})), IsEmpty()) << "a rank without steps";
}

// The cores of the host are not what computes there.
TEST(Verdict, OfAGpuIsInItsTime) {
  Rank rank = computing(960).set(Phase::optimizer, 20).set(Fact::gpu, 1);
  rank.steps.threads = 1;
  const auto text = [&] { return telemetry::diagnosis(Ranks({rank.steps})); };
  EXPECT_THAT(text(), AllOf(HasSubstr("1000 us each:"), HasSubstr("Times are those of the host, which runs ahead of")));
  rank.steps.is_gpu_time = 1;
  EXPECT_THAT(text(), AllOf(HasSubstr("1000 us each in the time of the GPU:"), Not(HasSubstr("runs ahead")),
                            HasSubstr("or launches what computes: graph::capture() launches a step at once")));
  EXPECT_THAT(telemetry::verdict(Ranks({rank.steps})), IsEmpty());
  EXPECT_TRUE(Ranks(std::vector<RankSteps>(7, rank.steps)).is_gpu_time());
}

// The host knows of the exchange through NCCL only how long it keeps the GPUs waiting.
TEST(Verdict, OfALaunchedExchangeHasNoSpeedOfTheWire) {
  const Rank rank = networked(300, 20, 1).set(Fact::is_launched, 1).set(Effort::exchange, 2, kMib);
  EXPECT_EQ(first_of({rank, rank}).brake, Brake::link);
  EXPECT_THAT(first_of({rank, rank}).text, Not(HasSubstr("Mbit/s")));
  EXPECT_THAT(telemetry::diagnosis(Ranks({rank.steps, rank.steps})), Not(HasSubstr("exchange takes")));
}

TEST(Diagnosis, OfRanksWithClocksOfTwoKindsSaysSo) {
  const Rank host = computing(900).set(Fact::gpu, 1);
  Rank gpu = host;
  gpu.steps.is_gpu_time = 1;
  EXPECT_THAT(telemetry::diagnosis(Ranks({host.steps, gpu.steps})),
              HasSubstr("Times of 1 of 2 ranks are those of the host, which runs ahead of the GPU"));
}

TEST(Diagnosis, SaysWhereMostMemoryIsInUse) {
  Rank rank = computing(1000).set(Fact::parameter_bytes, 2 * kMib).set(Fact::peak_bytes, 9 * kMib);
  const auto text = [&] { return telemetry::diagnosis(Ranks({rank.steps, rank.steps})); };
  EXPECT_THAT(text(), HasSubstr("at most 9.0 MiB\n"));
  rank.steps.peak_place = "forward of conv1";
  rank.steps.peak_bytes = 7 * kMib;
  EXPECT_THAT(text(), HasSubstr("at most 9.0 MiB; in these steps 7.0 MiB, in 'forward of conv1'\n"));
  rank.set(Phase::replay, 10);
  EXPECT_THAT(text(), HasSubstr("at most 9.0 MiB\n")) << "a replay allocates nothing";
}

// Steps that use memory again, and earlier ones that used more, do not hide the place.
TEST(PeakPlace, IsWhereMostWasInUseSinceTheStepTimesBegan) {
  {
    const Tensor earlier = ones({4 << 20});
  }
  nn::Sequential model(nn::Linear(64, 8), nn::Linear(8, 1 << 10));
  const auto step = [&] { model(ones({1024, 64})).sum().backward(); };
  for (int i = 0; i < 3; ++i) {
    step();
  }
  StepTimes times;
  const Tensor out = model(ones({1024, 64}));  // 4 MiB
  EXPECT_EQ(core::peak_of(-1).place, "forward of 1");
  out.sum().backward();
  EXPECT_THAT(core::peak_of(-1).place, StartsWith("backward of "));
  const Tensor more = ones({8 << 20});
  EXPECT_EQ(core::peak_of(-1).place, "") << "outside of the steps";
  times.reset();
  model(ones({1024, 64}));
  EXPECT_EQ(core::peak_of(-1).place, "forward of 1");
}

TEST(StepProfile, OfRanksThatShareIsThatOfOneThatDoesAll) {
  const auto profile_of = [](const Rank& rank) { return telemetry::profile_of(Ranks({rank.steps, rank.steps})); };
  const Rank plain = computing(600).set(Phase::optimizer, 400).set(Fact::state_bytes, 8);
  EXPECT_EQ(profile_of(plain).optimizer_us, 400);
  const Rank sharded = computing(600).set(Phase::optimizer, 200).set(Fact::state_bytes, 4).set(Fact::shards_updates, 1);
  EXPECT_EQ(profile_of(sharded).optimizer_us, 400);
  EXPECT_EQ(profile_of(sharded).state_bytes, 8);
  const Rank stage = computing(300).set(Phase::optimizer, 200).set(Fact::stages, 2);
  EXPECT_EQ(profile_of(stage).forward_us + profile_of(stage).backward_us, 600);
  EXPECT_EQ(profile_of(stage).optimizer_us, 400);
}

TEST(RankSteps, TravelAsNumbers) {
  Rank rank = networked(600, 3, 2).set(Fact::rows, 7).set(Effort::read, 5, 6);
  rank.steps.bound_to = {3, 4};
  rank.steps.waits = {1, 2, 3};
  rank.steps.is_gpu_time = 1;
  rank.steps.peak_place = "forward of conv1";
  const RankSteps copy = RankSteps::from_values(rank.steps.to_values());
  EXPECT_EQ(copy.to_values(), rank.steps.to_values());
  EXPECT_EQ(copy.of(Effort::read).bytes, 6);
  EXPECT_EQ(copy.of(Fact::rows), 7);
  EXPECT_THAT(copy.waits, ElementsAre(1, 2, 3));
  EXPECT_EQ(copy.latency_us, 5);
  EXPECT_EQ(copy.is_gpu_time, 1);
  EXPECT_EQ(copy.peak_place, "forward of conv1");
}

/// The warnings while it exists.
class Warnings {
 public:
  Warnings() {
    set_warning_handler([this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      all_.push_back(text);
    });
  }
  ~Warnings() { set_warning_handler({}); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  std::vector<std::string> all() {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> all_;
};

// Rank 1 of 2 is slow for more than a second.
void train_with_a_slow_rank() {
  spawn(2, [](ProcessGroup& group) {
    test::Mlp model = test::seeded<test::Mlp>();
    DistributedDataParallel ddp(model);
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    for (int step = 0; step < 20; ++step) {
      test::sleep_ms(group.rank() == 1 ? 80 : 1);
      sgd.zero_grad();
      ddp(test::batch_of(32).x).mean().backward();
      sgd.step();
    }
  });
}

TEST(FirstSteps, OfRanksThatCouldBeFasterAreSaidInOneLine) {
  Warnings warnings;
  train_with_a_slow_rank();
  EXPECT_THAT(warnings.all(), ElementsAre(AllOf(HasSubstr("the first 14 steps on 2 ranks: training could be "),
                                                HasSubstr(" times as fast: all wait for rank 1, busy for "),
                                                HasSubstr("diagnose() and --report say more [TDM-W604]"))));
}

TEST(FirstSteps, OfAPipelineAreSaid) {
  Warnings warnings;
  nn::Sequential model(nn::Linear(6, 6), nn::Linear(6, 3));
  Pipeline pipeline(model, test::cpus(2), {.microbatches = 2});
  optim::SGD sgd(pipeline.parameters(), {.lr = 0.1});
  const test::Batch batch = test::batch_of(32, DType::f32);
  for (int step = 0; step < 20; ++step) {
    test::sleep_ms(80);
    sgd.zero_grad();
    pipeline.step(batch.x, batch.y, [](const Tensor& out, const Tensor& y) { return cross_entropy(out, y); });
    sgd.step();
  }
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("is none of these phases, but what the loop does itself")));
}

TEST(FirstSteps, AreSilentIfTheEnvironmentAsksForIt) {
  ::setenv("TANDEM_ADVICE", "0", 1);
  Warnings warnings;
  train_with_a_slow_rank();
  ::unsetenv("TANDEM_ADVICE");
  EXPECT_THAT(warnings.all(), IsEmpty());
}

TEST(FirstSteps, OfReplicasInCapturedStepsAreSaid) {
  Warnings warnings;
  nn::Sequential model(nn::Linear(6, 3));
  DataParallel replicas(model, test::cpus(2));
  optim::SGD sgd(replicas.parameters(), {.lr = 0.1});
  const test::Batch batch = test::batch_of(32, DType::f32);
  auto step = graph::capture([&](const Tensor& x, const Tensor& y) {
    sgd.zero_grad();
    Tensor loss = cross_entropy(replicas(x), y);
    loss.backward();
    sgd.step();
    return loss;
  });
  for (int i = 0; i < 20; ++i) {
    test::sleep_ms(80);
    step(batch.x, batch.y);
  }
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("is none of these phases, but what the loop does itself")));
}

// A checkpoint in the first second is not what all steps are like.
TEST(FirstSteps, WithOnePauseAreNotJudgedByIt) {
  Warnings warnings;
  spawn(2, [&](ProcessGroup&) {
    test::Mlp model = test::seeded<test::Mlp>();
    DistributedDataParallel ddp(model);
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    for (int step = 0; step < 20; ++step) {
      test::sleep_ms(step == 5 ? 1500 : 0);
      sgd.zero_grad();
      ddp(test::batch_of(32).x).mean().backward();
      sgd.step();
    }
  });
  EXPECT_THAT(warnings.all(), IsEmpty());
}

// Updates that no Optimizer makes are not seen: the looking ends.
TEST(FirstSteps, WithoutAnOptimizerEndTheirLooking) {
  spawn(2, [&](ProcessGroup& group) {
    test::Mlp model = test::seeded<test::Mlp>();
    DistributedDataParallel ddp(model);
    const auto train = [&](int passes) {
      for (int pass = 0; pass < passes; ++pass) {
        for (const Tensor& parameter : model.parameters()) {
          parameter.zero_grad();
        }
        ddp(test::batch_of(4).x).mean().backward();
      }
    };
    train(2);
    EXPECT_TRUE(tandem::detail::has_span_listeners());
    train(62);
    group.barrier();
    EXPECT_FALSE(tandem::detail::has_span_listeners());
  });
}

TEST(FirstSteps, AreNoReasonToEndTraining) {
  set_warning_handler([](const std::string& text) { throw ConfigError(text); });
  train_with_a_slow_rank();
  set_warning_handler({});
}

// A pipeline that trained before on the same thread is no part of what comes later.
TEST(StepTimes, HasNoFactsOfAnEarlierWrapper) {
  const StepTimes times;
  const auto fact = [&](Fact wanted) { return times.whole_steps().facts[static_cast<std::size_t>(wanted)]; };
  const test::Batch batch = test::batch_of(32, DType::f32);
  {
    nn::Sequential model(nn::Linear(6, 6), nn::Linear(6, 3));
    Pipeline pipeline(model, test::cpus(2), {.microbatches = 2});
    optim::SGD sgd(pipeline.parameters(), {.lr = 0.1});
    for (int step = 0; step < 2; ++step) {
      pipeline.step(batch.x, batch.y, [](const Tensor& out, const Tensor& y) { return cross_entropy(out, y); });
      sgd.step();
    }
    EXPECT_EQ(fact(Fact::stages), 2);
  }
  nn::Linear model(6, 3);
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  for (int step = 0; step < 2; ++step) {
    cross_entropy(model(batch.x), batch.y).backward();
    sgd.step();
  }
  EXPECT_EQ(fact(Fact::stages), 0);
  EXPECT_GT(fact(Fact::parameter_bytes), 0);
}

// A replay does not run the code that says them.
TEST(StepTimes, HasTheFactsOfCapturedSteps) {
  spawn(1, [](ProcessGroup&) {
    test::Mlp model = test::seeded<test::Mlp>();
    DistributedDataParallel ddp(model);
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    const StepTimes times;
    auto step = graph::capture([&](const Tensor& x) {
      sgd.zero_grad();
      Tensor loss = ddp(x).mean();
      loss.backward();
      sgd.step();
      return loss;
    });
    for (int i = 0; i < 8; ++i) {
      step(test::batch_of(32).x);
    }
    EXPECT_EQ(times.whole_steps().facts[static_cast<std::size_t>(Fact::rows)], 32);
  });
}

// What happens after the last step is no part of it.
TEST(StepTimes, CountsEffortsUntilTheEndOfTheLastStep) {
  test::Mlp model = test::seeded<test::Mlp>();
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  const Tensor values = zeros({1000});
  const StepTimes times;
  const auto reads = [&] { return times.whole_steps().efforts[static_cast<std::size_t>(Effort::read)]; };
  for (int step = 0; step < 3; ++step) {
    values.to_vector<float>();
    model(test::batch_of(4).x).sum().backward();
    sgd.step();
  }
  EXPECT_EQ(reads().count, 2) << "without the first step";
  EXPECT_EQ(reads().bytes, 8000);
  values.to_vector<float>();
  EXPECT_EQ(reads().count, 2);
}

// Some ranks have ended and only follow, and some steps are replays: the exchange keeps its place.
TEST(FirstSteps, OfAJoinAndOfCapturedStepsExchangeInStep) {
  Warnings warnings;
  spawn(3, [&](ProcessGroup& group) {
    test::Mlp model = test::seeded<test::Mlp>();
    DistributedDataParallel ddp(model);
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    const auto train = [&](const Tensor& x) {
      sgd.zero_grad();
      Tensor loss = ddp(x).mean();
      loss.backward();
      sgd.step();
      return loss;
    };
    {
      Join join(ddp);
      for (int step = 0; step < 10 + 5 * group.rank(); ++step) {
        train(test::batch_of(4).x);
      }
      join.finish([&] { sgd.step(); });
    }
    auto captured = graph::capture(train);
    const Tensor x = test::batch_of(4).x;
    for (int step = 0; step < 60; ++step) {
      captured(x);
    }
  });
}

}  // namespace
}  // namespace tandem::parallel

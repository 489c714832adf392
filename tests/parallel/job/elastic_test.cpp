#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/checkpoint/generations.h>
#include <tandem/checkpoint/stored_tensors.h>
#include <tandem/tandem.h>

#include "checkpoint/resumed_training.h"
#include "support/message.h"
#include "support/temp_dir.h"
#include "support/warnings.h"

// Ranks that are threads and go on without those that are lost. tests/chaos has ranks that are processes.

namespace tandem::parallel {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

struct ElasticNet : nn::Module<ElasticNet> {
  nn::Linear fc1 = child("fc1", nn::Linear(6, 8, {.dtype = DType::f64}));
  nn::Linear fc2 = child("fc2", nn::Linear(8, 3, {.dtype = DType::f64}));
  Tensor forward(const Tensor& x) const { return fc2(relu(fc1(x))); }
};

data::TensorDataset elastic_samples() {
  Generator generator(5);
  const GeneratorScope scope(generator);
  const Tensor x = randn({48, 6}, {.dtype = DType::f64});
  return {x, x.slice(1, 0, 3).argmax(1)};
}

std::shared_ptr<DistributedSampler> part(const data::TensorDataset& samples, int rank, int ranks) {
  return std::make_shared<DistributedSampler>(
      samples, DistributedSamplerOptions{.num_replicas = ranks, .rank = rank, .seed = 3, .exact = true});
}

constexpr std::int64_t kBatch = 3;  // 4 steps of 4 ranks in an epoch
constexpr std::int64_t kEpochs = 3;

// The places at which a rank can be lost in a step.
enum class Place { before_backward, after_backward, after_step };

struct Loss {
  int rank = -1;
  std::int64_t step = -1;
  Place place = Place::before_backward;
};

[[noreturn]] void lose() { throw ValueError("this rank is lost"); }

struct Trained {
  std::vector<Tensor> parameters;  // of the first rank that has ended
  std::int64_t steps = 0;
  std::string log;
};

// Trains on 4 ranks, of which one is lost.
Trained train_and_lose(const Loss& loss, bool is_captured) {
  const test::TempDir dir;
  const data::TensorDataset samples = elastic_samples();
  std::mutex mutex;
  std::optional<Trained> trained;
  test::Warnings warnings;
  manual_seed(7);
  spawn(4,
        [&](ProcessGroup& group) {
          const bool is_doomed = group.size() == 4 && group.rank() == loss.rank;
          ElasticNet model;
          optim::Adam adam(model.parameters(), {.lr = 0.01});
          optim::CosineAnnealingLR schedule(adam, {.T_max = 40});
          DistributedDataParallel ddp(model);
          data::DataLoader loader(samples, {.batch_size = kBatch,
                                            .sampler = part(samples, group.rank(), group.size()),
                                            .device = core::thread_state().device});
          checkpoint::Run run(dir.path() + "/run", {.every = 5, .signals = false});
          run.track(model, adam, schedule, loader);
          std::int64_t step = 0;
          const auto lose_at = [&](Place place) {
            if (is_doomed && step == loss.step && place == loss.place) {
              lose();
            }
          };
          const auto update = [&](const Tensor& x, const Tensor& y) {
            adam.zero_grad();
            Tensor value = nn::cross_entropy(ddp(x), y);
            value.backward();
            adam.step();
            return value;
          };
          auto captured = graph::capture(update);
          for (const std::int64_t epoch : run.epochs(kEpochs)) {
            for (const auto& [x, y] : loader) {
              step = run.steps();
              lose_at(Place::before_backward);
              const Tensor value = is_captured ? captured(x, y) : update(x, y);
              lose_at(Place::after_backward);
              schedule.step();
              run.step(value);
              lose_at(Place::after_step);
            }
            run.log({{"epoch", epoch}});
          }
          const std::lock_guard lock(mutex);
          std::vector<Tensor> parameters;
          for (const Tensor& parameter : model.parameters()) {
            parameters.push_back(parameter.detach().clone());
          }
          if (trained) {
            for (std::size_t i = 0; i < parameters.size(); ++i) {
              EXPECT_EQ(trained->parameters[i].to_vector<double>(), parameters[i].to_vector<double>());
            }
          }
          trained = Trained{parameters, run.steps(), test::read_text(dir.path() + "/run/metrics.jsonl")};
        },
        {.group = {.timeout = std::chrono::seconds(20)}, .elastic = 3});
  return *trained;
}

// One device does the same: it takes batches of four ranks for so many steps, and of three after them.
Trained train_alone(std::int64_t steps_of_four) {
  const data::TensorDataset samples = elastic_samples();
  Generator generator(7);
  const GeneratorScope scope(generator);
  ElasticNet model;
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  optim::CosineAnnealingLR schedule(adam, {.T_max = 40});
  std::int64_t steps = 0;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (std::int64_t used = 0; used < samples.size();) {
      const int ranks = steps < steps_of_four ? 4 : 3;
      std::vector<std::int64_t> batch;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<std::int64_t> mine = part(samples, rank, ranks)->indices_after(epoch, used);
        batch.insert(batch.end(), mine.begin(), mine.begin() + std::min<std::int64_t>(kBatch, std::ssize(mine)));
      }
      const data::TensorDataset rows = samples.subset(from_data(batch));
      adam.zero_grad();
      nn::cross_entropy(model(rows.x()), rows.y()).backward();
      adam.step();
      schedule.step();
      ++steps;
      used += std::ssize(batch);
    }
  }
  return {model.parameters(), steps, ""};
}

double largest_difference(const Trained& a, const Trained& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.parameters.size(); ++i) {
    const NoGradGuard no_grad;
    largest = std::max(largest, (a.parameters[i].to("cpu") - b.parameters[i]).abs().max().item<double>());
  }
  return largest;
}

void expect_like_one_device(const Loss& loss, bool is_captured) {
  SCOPED_TRACE(fmt::format("rank {} is lost in step {}, at place {}", loss.rank, loss.step, int(loss.place)));
  const Trained trained = train_and_lose(loss, is_captured);
  // Once the gradients are reduced the step counts, also without the rank that was lost then.
  const Trained alone = train_alone(loss.step + (loss.place == Place::before_backward ? 0 : 1));
  EXPECT_EQ(trained.steps, alone.steps);
  EXPECT_LT(largest_difference(trained, alone), 1e-12);
  EXPECT_EQ(trained.log, "{\"epoch\":0}\n{\"epoch\":1}\n{\"epoch\":2}\n");
}

TEST(ElasticThreads, GoOnAfterTheLastStepLikeOneDeviceWithTheirBatches) {
  for (int rank = 0; rank < 4; ++rank) {
    for (const std::int64_t step : {0, 2, 3, 4, 7}) {  // the first and the last of an epoch among them
      for (const Place place : {Place::before_backward, Place::after_backward, Place::after_step}) {
        expect_like_one_device({rank, step, place}, false);
      }
    }
  }
}

TEST(ElasticThreads, GoOnInCapturedSteps) {
  for (const std::int64_t step : {0, 2, 3, 5}) {
    expect_like_one_device({1, step, Place::before_backward}, true);
    expect_like_one_device({0, step, Place::after_step}, true);
  }
}

// The tensors of the last checkpoint, but for those of ranks other than 0.
StateDict last_state(const std::string& folder) {
  const checkpoint::Generation last =
      checkpoint::Generations::newest_whole(folder + "/checkpoints", [](const std::string&) {});
  StateDict state;
  for (const auto& [name, value] : last.state) {
    if (!name.starts_with("rank.") || name.starts_with("rank.0.")) {
      state.set(name, value);
    }
  }
  return state;
}

// Batch norm, dropout, a scaler, a schedule and an average take part.
TEST(ElasticThreads, GoOnWithTheBitsOfARunThatIsResumedByTheRanksThatAreLeft) {
  const auto ranks = test::Way::ranks;
  const auto joined = test::Way::ranks_in_join;
  // Batches of a single sample, which batch norm refuses, do not occur with these.
  for (const auto& [way, stop_at] :
       {std::pair<test::Way, std::int64_t>{ranks, 2}, {ranks, 4}, {ranks, 9}, {ranks, 13}, {joined, 2}, {joined, 4}}) {
    SCOPED_TRACE(fmt::format("{}, step {}", test::to_string(way), stop_at));
    test::Warnings warnings;
    const test::TempDir dir;
    const test::TrainingPlan plan{.way = way, .steps = 30, .logs_steps = true};
    test::TrainingPlan stops = plan;
    stops.stop_at = stop_at;
    EXPECT_THROW(test::train(dir.path() + "/resumed", stops, {.every = stop_at, .signals = false}, 3),
                 std::runtime_error);
    test::train(dir.path() + "/resumed", plan, {.every = 0, .signals = false}, 2);
    manual_seed(7);
    spawn(3,
          [&](ProcessGroup& group) {
            test::train_here(dir.path() + "/elastic", group.size() == 3 && group.rank() == 2 ? stops : plan,
                             {.every = 0, .signals = false});
          },
          {.elastic = 2});
    const StateDict resumed = last_state(dir.path() + "/resumed");
    const StateDict elastic = last_state(dir.path() + "/elastic");
    ASSERT_GT(resumed.size(), 20);
    ASSERT_EQ(elastic.size(), resumed.size());
    for (const auto& [name, value] : resumed) {
      EXPECT_EQ(checkpoint::hash_of(elastic.at(name)), checkpoint::hash_of(value)) << name;
    }
    EXPECT_EQ(test::read_text(dir.path() + "/elastic/metrics.jsonl"),
              test::read_text(dir.path() + "/resumed/metrics.jsonl"));
  }
}

TEST(ElasticThreads, AreRanksOfASmallerGroupAndKeepTheirNumbersInErrors) {
  test::Warnings warnings;
  std::mutex mutex;
  std::vector<std::string> seen;
  std::vector<std::string> errors;
  spawn(4,
        [&](ProcessGroup& group) {
          {
            const std::lock_guard lock(mutex);
            seen.push_back(fmt::format("{} of {}", group.rank(), get_world_size()));
          }
          if (group.size() == 4 && group.rank() == 1) {
            lose();
          }
          if (group.size() == 3 && group.rank() == 1) {
            throw ValueError("gone, too");
          }
          try {
            group.barrier();
          } catch (const CommError& error) {
            const std::lock_guard lock(mutex);
            errors.emplace_back(error.what());
            throw;
          }
        },
        {.elastic = 2});
  EXPECT_THAT(seen, testing::UnorderedElementsAre("0 of 4", "1 of 4", "2 of 4", "3 of 4", "0 of 3", "1 of 3", "2 of 3",
                                                  "0 of 2", "1 of 2"));
  EXPECT_THAT(errors, testing::Contains(HasSubstr("rank 1 is lost: its function threw: this rank is lost")));
  EXPECT_THAT(errors, testing::Contains(HasSubstr("rank 2 is lost: its function threw: gone, too")));
  EXPECT_THAT(warnings.texts(),
              ElementsAre("spawn: rank 1 was lost, and the others went on: it threw: this rank is lost",
                          "spawn: rank 2 was lost, and the others went on: it threw: gone, too"));
}

TEST(ElasticThreads, DrawTheSameRandomNumbersInEachCall) {
  test::Warnings warnings;
  std::mutex mutex;
  std::vector<std::vector<float>> drawn(3);
  spawn(3,
        [&](ProcessGroup& group) {
          const int number = group.size() == 3 ? group.rank() : group.rank() + 1;
          const std::vector<float> now = randn({3}).to_vector<float>();
          {
            const std::lock_guard lock(mutex);
            auto& first = drawn[static_cast<std::size_t>(number)];
            first = first.empty() ? now : first;
            EXPECT_EQ(first, now);
          }
          if (group.size() == 3 && group.rank() == 0) {
            lose();
          }
          group.barrier();
        },
        {.elastic = 2});
}

TEST(ElasticThreads, FailWhereTooFewAreLeft) {
  std::atomic<int> calls{0};
  EXPECT_EQ(message_of<ValueError>([&] {
              spawn(3,
                    [&](ProcessGroup& group) {
                      ++calls;
                      if (group.rank() == 2) {
                        lose();
                      }
                      group.barrier();
                    },
                    {.elastic = 3});
            }),
            "this rank is lost\n  in rank 2 of 3");
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(message_of<ConfigError>([] { spawn(2, [](int) {}, {.elastic = 3}); }),
            "spawn: elastic is 3: expected 0, or how many of the 2 ranks must be left for the others to go on");
}

TEST(ElasticThreads, FailTogetherByAnErrorThatAllHave) {
  std::atomic<int> calls{0};
  EXPECT_THAT(message_of<CommError>([&] {
                spawn(2,
                      [&](ProcessGroup& group) {
                        ++calls;
                        group.all_reduce(zeros({group.rank() + 1}));
                      },
                      {.elastic = 1});
              }),
              HasSubstr("rank 0: all_reduce"));
  EXPECT_EQ(calls, 2);
}

// A part of a program that tracks state, and loses a rank.
void train_with(const DistributedOptions& options, const checkpoint::RunOptions& run_options, bool steps_late) {
  const test::TempDir dir;
  const test::Warnings warnings;
  spawn(2,
        [&](ProcessGroup& group) {
          nn::Linear model(2, 1);
          optim::Adam adam(model.parameters());
          DistributedDataParallel ddp(model, options);
          checkpoint::Run run(dir.path() + "/run", run_options);
          run.track(model, adam);
          for ([[maybe_unused]] const std::int64_t epoch : run.epochs(4)) {
            adam.zero_grad();
            ddp(ones({1, 2})).sum().backward();
            adam.step();
            if (steps_late) {
              if (group.size() == 2 && group.rank() == 1) {
                lose();
              }
              group.barrier();
            }
            run.step();
          }
        },
        {.elastic = 1});
}

TEST(ElasticThreads, RefuseStateThatALostRankWouldTakeAlong) {
  EXPECT_THAT(message_of<ConfigError>([] { train_with({.shard = Shard::optimizer}, {.signals = false}, false); }),
              HasSubstr("DistributedDataParallel #0 with .shard: in an elastic job a lost rank would take its part of "
                        "the optimiser's state along, and the others could not go on. Start the job without --elastic; "
                        "--max-restarts and a checkpoint::Run survive a loss, too"));
  EXPECT_THAT(
      message_of<ConfigError>([] { train_with({}, {.sharded = true, .signals = false}, false); }),
      HasSubstr("Run with .sharded: in an elastic job a lost rank would take its part of the checkpoints along"));
  const auto in_elastic_job = [](const auto& make) {
    return message_of<ConfigError>([&] { spawn(2, make, {.elastic = 1}); });
  };
  EXPECT_THAT(in_elastic_job([](ProcessGroup& group) {
                nn::Sequential model{nn::Linear(2, 2), nn::Linear(2, 2)};
                const Pipeline pipeline(model, group);
              }),
              HasSubstr("Pipeline: in an elastic job a lost rank would take its stage along"));
  EXPECT_THAT(in_elastic_job([](ProcessGroup& group) { ColumnParallelLinear(nn::Linear(2, 2), group); }),
              HasSubstr("ColumnParallelLinear: in an elastic job a lost rank would take its part of the layer along"));
}

void make_step(DistributedDataParallel<nn::Linear>& ddp, optim::Optimizer& optimizer) {
  optimizer.zero_grad();
  ddp(ones({1, 2})).sum().backward();
  optimizer.step();
}

TEST(ElasticThreads, KeepTheirStateWhereAnotherRankIsLostBeforeTheyHaveGoneOn) {
  const test::TempDir dir;
  const test::Warnings warnings;
  std::mutex mutex;
  std::vector<std::string> begun;
  spawn(4,
        [&](ProcessGroup& group) {
          nn::Linear model(2, 1);
          optim::SGD sgd(model.parameters(), {.lr = 0.1});
          DistributedDataParallel ddp(model);
          checkpoint::Run run(dir.path() + "/run", {.every = 0, .signals = false});
          run.track(model, sgd);
          if (group.rank() == 0) {
            const std::lock_guard lock(mutex);
            begun.push_back(fmt::format("{} ranks at step {}", group.size(), run.steps()));
          }
          if (group.size() == 3 && group.rank() == 2) {
            lose();
          }
          for ([[maybe_unused]] const std::int64_t epoch : run.epochs(6)) {
            if (group.size() == 4 && group.rank() == 3 && run.steps() == 3) {
              lose();
            }
            make_step(ddp, sgd);
            run.step();
          }
        },
        {.elastic = 2});
  EXPECT_THAT(begun, ElementsAre("4 ranks at step 0", "3 ranks at step 3", "2 ranks at step 3"));
}

TEST(ElasticThreads, DoTheEndOfAnEpochAgainWithTheRatesAndNumbersOfItsBeginning) {
  const test::TempDir dir;
  const test::Warnings warnings;
  std::mutex mutex;
  std::vector<double> rates;
  std::vector<double> seen;
  spawn(3,
        [&](ProcessGroup& group) {
          nn::Linear model(2, 1);
          optim::SGD sgd(model.parameters(), {.lr = 1});
          optim::ExponentialLR schedule(sgd, {.gamma = 0.5});
          DistributedDataParallel ddp(model);
          checkpoint::Run run(dir.path() + "/run", {.every = 0, .signals = false});
          double steps = 0;
          run.track(model, sgd, schedule);
          run.track("steps", steps);
          bool is_first = true;
          for (const std::int64_t epoch : run.epochs(3)) {
            if (!is_first || !run.is_resumed()) {
              make_step(ddp, sgd);
              ++steps;
              run.step();
            }
            is_first = false;
            schedule.step();
            if (group.size() == 3 && group.rank() == 1 && epoch == 1) {
              lose();
            }
            group.barrier();  // as a mean over the ranks
            if (group.rank() == 0) {
              const std::lock_guard lock(mutex);
              rates.push_back(sgd.learning_rate());
              seen.push_back(steps);
            }
          }
        },
        {.elastic = 2});
  EXPECT_THAT(rates, ElementsAre(0.5, 0.25, 0.125));
  EXPECT_THAT(seen, ElementsAre(1, 2, 3));
}

TEST(ElasticThreads, CallAFunctionAgainThatHasCaughtTheErrorOfALoss) {
  const test::Warnings warnings;
  std::atomic<int> ends{0};
  spawn(3,
        [&](ProcessGroup& group) {
          if (group.size() == 3 && group.rank() == 2) {
            lose();
          }
          try {
            group.barrier();
            ++ends;
          } catch (const CommError&) {
          }
        },
        {.elastic = 2});
  EXPECT_EQ(ends, 2);
}

TEST(ElasticThreads, RefuseALoaderThatDoesNotShareAnew) {
  EXPECT_THAT(message_of<ConfigError>([] {
                const test::TempDir dir;
                const test::Warnings warnings;
                const data::TensorDataset samples(ones({12, 2}), ones({12, 1}));
                spawn(3,
                      [&](ProcessGroup& group) {
                        nn::Linear model(2, 1);
                        optim::SGD sgd(model.parameters(), {.lr = 0.1});
                        DistributedDataParallel ddp(model);
                        data::DataLoader loader(samples, {.sampler = part(samples, group.rank(), 3),
                                                          .device = core::thread_state().device});
                        checkpoint::Run run(dir.path() + "/run", {.every = 0, .signals = false});
                        run.track(model, sgd, loader);
                        for ([[maybe_unused]] const std::int64_t epoch : run.epochs(2)) {
                          for (const auto& [x, y] : loader) {
                            sgd.zero_grad();
                            ddp(x).sum().backward();
                            sgd.step();
                            run.step();
                            if (group.size() == 3 && group.rank() == 2) {
                              lose();
                            }
                          }
                        }
                      },
                      {.elastic = 2});
              }),
              HasSubstr("does not share its samples with the other ranks"));
}

TEST(ElasticThreads, WriteLinesThatRankZeroHadNoTimeFor) {
  const test::TempDir dir;
  const test::Warnings warnings;
  spawn(4,
        [&](ProcessGroup& group) {
          nn::Linear model(2, 1);
          optim::SGD sgd(model.parameters(), {.lr = 0.1});
          DistributedDataParallel ddp(model);
          checkpoint::Run run(dir.path() + "/run", {.every = 0, .signals = false});
          run.track(model, sgd);
          if (group.size() == 4 && group.rank() == 0) {
            group.barrier();
            lose();
          }
          if (!run.is_resumed()) {
            run.log({{"header", true}});
          }
          if (group.size() == 4) {
            group.barrier();
          }
          for ([[maybe_unused]] const std::int64_t epoch : run.epochs(5)) {
            if (group.size() == 3 && group.rank() == 0 && run.steps() == 3) {
              lose();
            }
            make_step(ddp, sgd);
            run.log({{"step", run.steps() + 1}});
            run.step();
          }
        },
        {.elastic = 2});
  EXPECT_EQ(test::read_text(dir.path() + "/run/metrics.jsonl"),
            "{\"header\":true}\n{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n{\"step\":5}\n");
}

TEST(ElasticThreads, NameAModelThatHadChangedOnAllRanksSinceTheLastStep) {
  EXPECT_THAT(message_of<ConfigError>([] { train_with({}, {.signals = false}, true); }),
              HasSubstr("Run: a rank was lost, and on all others the model had changed since the last Run::step()"));
}

}  // namespace
}  // namespace tandem::parallel

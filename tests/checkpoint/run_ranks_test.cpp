#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "checkpoint/small_run.h"
#include "support/message.h"
#include "support/temp_dir.h"
#include "support/warnings.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::Interrupted;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(RunOfRanks, StopsOnAllRanksAtTheStepInWhichOneHasNaN) {
  const TempDir dir;
  std::mutex mutex;
  std::vector<std::string> texts;
  std::set<std::vector<float>> weights;
  parallel::spawn(3, [&](int rank) {
    Small small;
    parallel::DistributedDataParallel ddp(small.model);
    checkpoint::Run run(dir.file("run"), {.every = 2});
    run.track(small.model, small.sgd);
    for (int i = 1; i <= 7; ++i) {
      small.sgd.zero_grad();
      const double factor = i == 6 && rank == 1 ? std::nan("") : 1;
      const Tensor loss = (ddp(ones({1, 2})) * factor).sum();
      // With a rank of its own, the wrapper would name the rank first.
      try {
        loss.backward();
        small.sgd.step();
        run.step(loss);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        texts.emplace_back(error.what());
        weights.insert(small.weights());
        break;
      }
    }
  });
  EXPECT_EQ(texts.size(), 3U);
  EXPECT_THAT(texts, ::testing::Each(StartsWith("step 6 (epoch 0): a gradient is not finite")));
  EXPECT_EQ(weights.size(), 1U);
  EXPECT_THAT(steps_in(dir), ElementsAre(4, 2));
}

TEST(RunOfRanks, NamesTheParameterInWhichRanksHaveDriftedApart) {
  const TempDir dir;
  std::mutex mutex;
  std::vector<std::string> texts;
  parallel::spawn(2, [&](int rank) {
    Small small;
    parallel::DistributedDataParallel ddp(small.model);
    checkpoint::Run run(dir.file("run"), {.every = 5});
    run.track(small.model, small.sgd);
    for (int i = 1; i <= 4; ++i) {
      small.train(ddp);
      run.step();
    }
    if (rank == 1) {
      const NoGradGuard no_grad;
      small.model.bias[2].fill_(std::nextafter(small.model.bias[2].item<float>(), 100.0F));
    }
    const std::string text = message_of<ValueError>([&] { run.step(); });
    const std::lock_guard lock(mutex);
    texts.push_back(text);
  });
  EXPECT_THAT(texts, ElementsAre(StartsWith("the ranks' models have drifted apart: 'model.bias' on rank 1 is not that "
                                            "of rank 0. Nothing was saved."),
                                 texts.at(0)));
  EXPECT_THAT(steps_in(dir), IsEmpty());
}

TEST(RunOfRanks, SavesAtTheSameStepAfterASignalToTheProcess) {
  const TempDir dir;
  std::mutex mutex;
  std::set<std::int64_t> steps;
  parallel::spawn(3, [&](int rank) {
    Small small;
    parallel::DistributedDataParallel ddp(small.model);
    checkpoint::Run run(dir.file("run"), {.every = 0});
    run.track(small.model, small.sgd);
    try {
      for (int i = 0;; ++i) {
        small.train(ddp);
        if (rank == 2 && i == 20) {
          std::raise(SIGTERM);
        }
        run.step();
      }
    } catch (const Interrupted&) {
      const std::lock_guard lock(mutex);
      steps.insert(run.steps());
    }
  });
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_THAT(steps_in(dir), ElementsAre(*steps.begin()));
}

TEST(RunOfRanks, AllHearOfACheckpointThatCouldNotBeWritten) {
  for (const bool sharded : {false, true}) {
    const TempDir dir;
    std::mutex mutex;
    std::vector<std::string> texts;
    parallel::spawn(3, [&](int rank) {
      Small small;
      parallel::DistributedDataParallel ddp(small.model);
      checkpoint::Run run(dir.file("run"), {.every = 0, .sharded = sharded});
      run.track(small.model, small.sgd);
      run.step();
      if (rank == 0) {
        fs::rename(dir.file("run/checkpoints"), dir.file("elsewhere"));
      }
      parallel::default_group().barrier();
      const std::string text = message_of<IoError>([&] { run.save(); });
      {
        const std::lock_guard lock(mutex);
        texts.push_back(text);
      }
      parallel::default_group().barrier();
      if (rank == 0) {
        fs::rename(dir.file("elsewhere"), dir.file("run/checkpoints"));
      }
      parallel::default_group().barrier();
      run.save();
    });
    EXPECT_EQ(texts.size(), 3U);
    EXPECT_THAT(steps_in(dir), ElementsAre(1)) << "the group has stayed usable";
  }
}

TEST(RunOfRanks, ShardsAreWholeTogetherOrNotAtAll) {
  const TempDir dir;
  std::map<std::int64_t, std::vector<float>> weights;
  std::mutex mutex;
  const auto train = [&](std::int64_t steps, std::int64_t begins_at) {
    parallel::spawn(3, [&](int rank) {
      nn::Sequential model(nn::Linear(20, 30), nn::Linear(30, 40), nn::Linear(40, 1));
      optim::Adam adam(model.parameters());
      parallel::DistributedDataParallel ddp(model);
      checkpoint::Run run(dir.file("run"), {.every = 1, .keep = 4, .sharded = true});
      run.track(model, adam);
      EXPECT_EQ(run.steps(), begins_at);
      if (begins_at > 0) {
        const std::lock_guard lock(mutex);
        EXPECT_EQ(model.parameters().front().to_vector<float>(), weights.at(begins_at));
      }
      while (run.steps() < steps) {
        adam.zero_grad();
        ddp(ones({1, 20})).sum().backward();
        adam.step();
        run.step();
        if (rank == 0) {
          const std::lock_guard lock(mutex);
          weights[run.steps()] = model.parameters().front().to_vector<float>();
        }
      }
      run.save();
    });
  };
  train(4, 0);
  const auto shard = [&](std::int64_t step, int rank) {
    return dir.file(fmt::format("run/checkpoints/step-{:010}.shard-{}.safetensors", step, rank));
  };
  const auto size_of = [](const std::string& path) { return static_cast<double>(fs::file_size(path)); };
  EXPECT_NEAR(size_of(shard(4, 1)), size_of(checkpoint_of(dir, 4)), 0.5 * size_of(shard(4, 1)));
  EXPECT_NEAR(size_of(shard(4, 1)), size_of(shard(4, 2)), 0.5 * size_of(shard(4, 1)));
  train(5, 4);
  EXPECT_THAT(steps_in(dir), ElementsAre(5, 4, 3, 2));
  EXPECT_FALSE(fs::exists(shard(1, 1)));
  Warnings warnings;
  damage(shard(5, 2));
  fs::remove(shard(4, 1));
  fs::copy(shard(2, 1), shard(3, 1), fs::copy_options::overwrite_existing);
  train(2, 2);
  EXPECT_THAT(warnings.texts(), ElementsAre(HasSubstr("step-0000000005.shard-2.safetensors"),
                                            HasSubstr("step-0000000004.shard-1.safetensors"),
                                            HasSubstr("this is not the shard that was saved with ")));
}

// The job loses and gains ranks in the middle of epochs. Every epoch has each sample once.
TEST(RunOfRanks, AnotherNumberOfRanksUsesEachSampleOnce) {
  const TempDir dir;
  const data::TensorDataset numbers(arange(0, 61).to(DType::f32).reshape({61, 1}));
  std::mutex mutex;
  std::map<std::int64_t, std::vector<std::int64_t>> used;  // by epoch
  std::int64_t stop_at = 0;
  for (const int ranks : {2, 4, 3, 1, 5}) {
    stop_at += 5;
    parallel::spawn(ranks, [&](int) {
      nn::Linear model(1, 1);
      optim::SGD sgd(model.parameters(), {.lr = 1e-6});
      parallel::DistributedDataParallel ddp(model);
      data::DataLoader loader(numbers, {.batch_size = 2,
                                        .sampler = std::make_shared<parallel::DistributedSampler>(
                                            numbers, parallel::DistributedSamplerOptions{.exact = true}),
                                        .device = core::thread_state().device});
      checkpoint::Run run(dir.file("run"), {.every = 1});
      run.track(model, sgd, loader);
      const auto after_step = [&] {
        run.step();
        return run.steps() >= stop_at && ranks != 5;
      };
      for (const std::int64_t epoch : run.epochs(3)) {
        parallel::Join join(ddp);
        bool stops = false;
        for (const auto& [x, y] : loader) {
          {
            const std::lock_guard lock(mutex);
            for (const double value : x.to(DType::f64).to_vector<double>()) {
              used[epoch].push_back(static_cast<std::int64_t>(value));
            }
          }
          sgd.zero_grad();
          ddp(x).sum().backward();
          sgd.step();
          if ((stops = after_step())) {
            break;
          }
        }
        join.finish([&] {
          sgd.step();
          after_step();
        });
        if (stops) {
          return;
        }
      }
    });
  }
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t>& samples = used[epoch];
    std::sort(samples.begin(), samples.end());
    EXPECT_EQ(samples, arange(0, 61).to(DType::i64).to_vector<std::int64_t>()) << epoch;
  }
}

}  // namespace
}  // namespace tandem::test

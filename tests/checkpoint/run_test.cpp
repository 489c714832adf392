#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <signal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/checkpoint/generations.h>
#include <tandem/tandem.h>

#include "support/forked.h"
#include "support/message.h"
#include "support/temp_dir.h"
#include "support/warnings.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::Generations;
using checkpoint::Interrupted;
using checkpoint::RunOptions;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A model of one layer. Each step moves its weights by the gradient of their sum times `factor`.
struct Small {
  nn::Linear model{2, 3};
  optim::SGD sgd{model.parameters(), {.lr = 0.5}};

  Tensor train(double factor = 1) {
    sgd.zero_grad();
    Tensor loss = (model(ones({1, 2})) * factor).sum();
    loss.backward();
    sgd.step();
    return loss;
  }
  std::vector<float> weights() const { return model.weight.to_vector<float>(); }
};

std::vector<std::int64_t> steps_in(const TempDir& dir) { return Generations::steps_in(dir.file("run/checkpoints")); }
std::string checkpoint_of(const TempDir& dir, std::int64_t step) {
  return Generations::path_in(dir.file("run/checkpoints"), step);
}

// Flips a bit in the last byte of a file.
void damage(const std::string& path) {
  std::string content = read_text(path);
  content.back() = static_cast<char>(content.back() ^ 1);
  write_text(path, content);
}

TEST(Run, KeepsTheNewestCheckpointsAndTheLastStep) {
  const TempDir dir;
  Small small;
  checkpoint::Run run(dir.file("run"), {.every = 10, .keep = 2});
  run.track(small.model, small.sgd);
  EXPECT_FALSE(run.is_resumed());
  for ([[maybe_unused]] const std::int64_t epoch : run.epochs(3)) {
    for (int i = 0; i < 15; ++i) {
      run.step(small.train());
    }
  }
  EXPECT_EQ(run.steps(), 45);
  EXPECT_THAT(steps_in(dir), ElementsAre(45, 40));
}

TEST(Run, AFinishedRunHasNothingMoreToDo) {
  const TempDir dir;
  std::vector<float> weights;
  for (const bool is_again : {false, true}) {
    Small small;
    checkpoint::Run run(dir.file("run"));
    run.track(small.model, small.sgd);
    EXPECT_EQ(run.is_resumed(), is_again);
    int epochs = 0;
    for ([[maybe_unused]] const std::int64_t epoch : run.epochs(2)) {
      ++epochs;
      run.step(small.train());
    }
    EXPECT_EQ(epochs, is_again ? 0 : 2);
    EXPECT_EQ(run.steps(), 2);
    EXPECT_EQ(run.epoch(), 2);
    weights = is_again ? weights : small.weights();
    EXPECT_EQ(small.weights(), weights);
  }
}

TEST(Run, PassesOverADamagedCheckpoint) {
  const TempDir dir;
  std::map<std::int64_t, std::vector<float>> weights;
  {
    Small small;
    checkpoint::Run run(dir.file("run"));
    run.track(small.model, small.sgd);
    for (int i = 1; i <= 3; ++i) {
      run.step(small.train());
      run.save();
      weights[i] = small.weights();
    }
  }
  damage(checkpoint_of(dir, 3));
  write_text(dir.file("run/checkpoints/step-0000000004.safetensors"), "cut o");  // and files of other programs
  write_text(dir.file("run/checkpoints/step-5.safetensors"), "");
  write_text(dir.file("run/checkpoints/step-x.safetensors"), "");
  Warnings warnings;
  Small small;
  {
    checkpoint::Run run(dir.file("run"));
    run.track(small.model, small.sgd);
    EXPECT_EQ(run.steps(), 2);
    EXPECT_EQ(small.weights(), weights[2]);
    EXPECT_THAT(warnings.texts(), ElementsAre(AllOf(StartsWith("passing over a damaged checkpoint: "),
                                                    HasSubstr("step-0000000004.safetensors")),
                                              HasSubstr("step-0000000003.safetensors")));
  }
  damage(checkpoint_of(dir, 2));
  damage(checkpoint_of(dir, 1));
  EXPECT_THAT(message_of<IoError>([&] { checkpoint::Run run(dir.file("run")); }),
              AllOf(HasSubstr("no checkpoint of this run is whole, and beginning anew here would hide that"),
                    HasSubstr("step-0000000004.safetensors")));
}

TEST(Run, DoesNotTakeAnotherFileForACheckpoint) {
  const TempDir dir;
  fs::create_directories(dir.file("run/checkpoints"));
  save(StateDict({{"x", ones({2})}}), checkpoint_of(dir, 1));
  EXPECT_THAT(message_of<IoError>([&] { checkpoint::Run run(dir.file("run")); }),
              EndsWith("this is no checkpoint of a run: its 'metrics_bytes' is '', expected a number"));
}

TEST(Run, StopsBeforeAnUpdateThatIsNotFinite) {
  for (const double factor : {HUGE_VAL, std::nan("")}) {
    for (const bool captured : {false, true}) {
      const TempDir dir;
      Small small;
      checkpoint::Run run(dir.file("run"), {.every = 2});
      run.track(small.model, small.sgd);
      auto step = graph::capture([&](const Tensor& x) {
        small.sgd.zero_grad();
        Tensor loss = small.model(x).sum();
        loss.backward();
        small.sgd.step();
        return loss;
      });
      const auto train = [&](double value) {
        return captured ? step(full({1, 2}, value)) : small.train(value);
      };
      for (int i = 0; i < 5; ++i) {
        run.step(train(1));
      }
      const std::vector<float> weights = small.weights();
      const Tensor loss = train(factor);
      EXPECT_THAT(message_of<ValueError>([&] { run.step(loss); }),
                  AllOf(StartsWith("step 6 (epoch 0): a gradient is not finite, first that of 'model.weight', nor is "
                                   "the loss, so optimizer left this update out. The checkpoint of step 4 in "),
                        HasSubstr(" is not touched by this. Resumed, the run looks at this step")));
      EXPECT_EQ(small.weights(), weights);
      EXPECT_THAT(steps_in(dir), ElementsAre(4, 2));  // written before the error, which promises them
    }
  }
}

// The weights of the second layer overflow in step 6. All gradients are then NaN, and only the forward pass tells where
// that began.
TEST(Run, NamesTheFirstLayerThatIsNotFiniteWhenItResumes) {
  const TempDir dir;
  const auto train = [&] {
    nn::Sequential model(nn::Linear(2, 4), nn::Linear(4, 4), nn::Linear(4, 1));
    optim::SGD sgd(model.parameters(), {.lr = 0.5});
    checkpoint::Run run(dir.file("run"), {.every = 2});
    run.track(model, sgd);
    for (;;) {
      sgd.zero_grad();
      Tensor hidden = model.get_submodule("1").get_parameter("weight");
      Tensor x = ones({1, 2});
      if (run.steps() == 5) {
        const NoGradGuard no_grad;
        hidden.fill_(3e38);
      }
      Tensor loss = model(x).sum() * 1e-3;
      loss.backward();
      sgd.step();
      run.step(loss);
    }
  };
  EXPECT_THAT(message_of<ValueError>(train), StartsWith("step 6 (epoch 0): a gradient is not finite"));
  EXPECT_THAT(message_of<ValueError>(train),
              AllOf(StartsWith("Linear '1': the result [1, 4] has "), HasSubstr("inf at element "),
                    EndsWith("and all results before it in this step were finite: look at this layer's parameters and "
                             "at the batch")));
  EXPECT_FALSE(core::thread_state().detects_anomaly);
}

TEST(Run, DoesNotSaveWeightsThatAreNotFinite) {
  const TempDir dir;
  Small small;
  checkpoint::Run run(dir.file("run"));
  run.track(small.model, small.sgd);
  run.step(small.train());
  run.save();
  {
    const NoGradGuard no_grad;
    small.model.bias[1].fill_(std::numeric_limits<double>::infinity());
  }
  run.step();
  EXPECT_EQ(message_of<ValueError>([&] { run.save(); }),
            "step 2: 'model.bias' is not finite, so this state was not saved; the checkpoints before it are as they "
            "were");
  EXPECT_THAT(steps_in(dir), ElementsAre(1));
}

TEST(Run, GoesOnWithoutACheckpointThatCannotBeWritten) {
  const TempDir dir;
  Warnings warnings;
  Small small;
  checkpoint::Run run(dir.file("run"), {.every = 1});
  run.track(small.model, small.sgd);
  run.step(small.train());
  run.step(small.train());
  run.save();
  fs::rename(dir.file("run/checkpoints"), dir.file("elsewhere"));
  run.step(small.train());
  run.step(small.train());
  EXPECT_THAT(warnings.texts(),
              ElementsAre(AllOf(StartsWith("a checkpoint could not be written, and the training goes on without it: "),
                                EndsWith("No such file or directory"))));
  EXPECT_THROW(run.save(), IoError);  // was asked for
  fs::rename(dir.file("elsewhere"), dir.file("run/checkpoints"));
  run.save();
  EXPECT_THAT(steps_in(dir), ElementsAre(4, 2, 1));
}

TEST(Run, SavesAndStopsAtASignal) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const TempDir dir;
    Small small;
    checkpoint::Run run(dir.file("run"));
    run.track(small.model, small.sgd);
    run.step(small.train());
    std::raise(signal);
    try {
      for (;;) {  // signals are looked at about ten times a second
        run.step(small.train());
      }
    } catch (const Interrupted& stopped) {
      EXPECT_EQ(stopped.signal(), signal);
      EXPECT_THAT(stopped.what(), AllOf(StartsWith(signal == SIGINT ? "SIGINT at step " : "SIGTERM at step "),
                                        HasSubstr("the run is saved in " + dir.file("run"))));
    }
    EXPECT_THAT(steps_in(dir), ElementsAre(run.steps()));
  }
}

TEST(Run, SavesAndGoesOnAtSigusr1) {
  const TempDir dir;
  Small small;
  checkpoint::Run run(dir.file("run"));
  run.track(small.model, small.sgd);
  run.step(small.train());
  std::raise(SIGUSR1);
  while (steps_in(dir).empty()) {
    run.step(small.train());
  }
  const std::vector<std::int64_t> saved = steps_in(dir);
  for (int i = 0; i < 2'000; ++i) {
    run.step(small.train());
  }
  EXPECT_LE(steps_in(dir).size(), 5U);  // once for the signal, and every 500 steps, of which 3 stay
  EXPECT_GT(saved.at(0), 0);
}

TEST(Run, LeavesSignalsAloneThatTheProgramHandles) {
  const TempDir dir;
  static int seen;
  seen = 0;
  ::signal(SIGTERM, [](int) { ++seen; });
  {
    checkpoint::Run run(dir.file("run"));
    std::raise(SIGTERM);
    EXPECT_EQ(seen, 1);
  }
  ::signal(SIGTERM, SIG_DFL);
  struct sigaction action{};
  ::sigaction(SIGINT, nullptr, &action);
  EXPECT_TRUE(action.sa_handler == SIG_DFL);  // as before the run
}

TEST(Run, LetsTheSecondCtrlCEndTheProcess) {
  const TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    checkpoint::Run run(dir.file("run"));
    std::raise(SIGINT);
    std::raise(SIGINT);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
}

TEST(Run, HasOneWriter) {
  const TempDir dir;
  checkpoint::Run run(dir.file("run"));
  EXPECT_THAT(message_of<IoError>([&] { checkpoint::Run second(dir.file("run")); }),
              HasSubstr("cannot use it as the run folder: another run does"));
  // A process that was taken for dead, and lives on another host, has lost the folder to its successor.
  Generations before(dir.file("shared"));
  Generations after(dir.file("shared"));
  const StateDict state({{"x", ones({2})}});
  EXPECT_THAT(message_of<ConfigError>([&] { before.write(1, state, {}, 3); }),
              EndsWith("another process has taken this run over; this one has stopped writing checkpoints"));
  after.write(1, state, {}, 3);
  EXPECT_THAT(Generations::steps_in(dir.file("shared")), ElementsAre(1));
}

TEST(Run, RemovesWhatAKilledProcessLeft) {
  const TempDir dir;
  fs::create_directories(dir.file("run/checkpoints"));
  write_text(checkpoint_of(dir, 3) + ".tmp-0123456789abcdef", "half");
  const checkpoint::Run run(dir.file("run"));
  EXPECT_FALSE(fs::exists(checkpoint_of(dir, 3) + ".tmp-0123456789abcdef"));
}

TEST(Run, SaysWhichPartDoesNotFit) {
  const TempDir dir;
  double sum = 0;
  {
    Small small;
    checkpoint::Run run(dir.file("run"));
    run.track(small.model, small.sgd);
    run.track("sum", sum);
    run.step(small.train());
    run.save();
  }
  const std::string path = checkpoint_of(dir, 1);
  Small small;
  nn::Linear other(2, 4);
  optim::EMA ema(small.model.parameters());
  {
    checkpoint::Run run(dir.file("run"));
    EXPECT_THAT(message_of<ConfigError>([&] { run.track(other); }),
                AllOf(HasSubstr("[3, 2]"), EndsWith("while restoring 'model' from " + path)));
    EXPECT_THAT(message_of<ConfigError>([&] { run.track(ema); }),
                HasSubstr("'" + path + "' has no 'ema': the run that saved it did not track one"));
    run.track(small.model, small.sgd);
    EXPECT_THAT(message_of<ConfigError>([&] { run.step(); }),
                HasSubstr("'" + path + "' has a part 'sum' that is not tracked"));
  }
  checkpoint::Run run(dir.file("run"));
  EXPECT_EQ(message_of<ConfigError>([&] { run.track("a.b", sum); }),
            "Run::track: expected a name without dots, other than 'rank' and 'random', got 'a.b'");
  run.track(small.model, small.sgd);
  run.track("sum", sum);
  EXPECT_EQ(message_of<ConfigError>([&] { run.track("sum", sum); }), "Run::track: there is a part 'sum' already");
  run.step();
  EXPECT_EQ(message_of<ConfigError>([&] { run.track(ema); }),
            "Run::track: 'ema' comes after the first step; track everything before the loop");
}

TEST(Run, BeginsAnewOnlyInAnEmptyFolderUnlessToldToResume) {
  const TempDir dir;
  {
    Small small;
    checkpoint::Run run(dir.file("run"), {.resume = false});
    run.track(small.model, small.sgd);
    run.step(small.train());
    run.save();
  }
  EXPECT_THAT(message_of<IoError>([&] { checkpoint::Run run(dir.file("run"), {.resume = false}); }),
              HasSubstr("cannot use it as the run folder: it exists and is not empty"));
  EXPECT_TRUE(checkpoint::Run(dir.file("run")).is_resumed());
}

TEST(Run, ARestartedJobUsesItsFolderAgain) {
  const TempDir dir;
  const std::string before = fs::current_path();
  fs::current_path(dir.path());
  std::string first;
  for (const char* job : {"job-1", "job-1", "job-2"}) {
    ::setenv("TORCHELASTIC_RUN_ID", job, 1);
    Small small;
    checkpoint::Run run("", {.resume = false, .program = "small"});
    run.track(small.model, small.sgd);
    first = first.empty() ? run.folder()->path() : first;
    EXPECT_EQ(run.folder()->path() == first, std::string(job) == "job-1");
    EXPECT_THAT(run.folder()->path(), StartsWith("runs/small-"));
    run.step(small.train());
    run.save();
  }
  EXPECT_THAT(Generations::steps_in(first + "/checkpoints"), ElementsAre(2, 1));
  ::unsetenv("TORCHELASTIC_RUN_ID");
  fs::current_path(before);
}

// ---- ranks ----

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
      small.sgd.zero_grad();
      ddp(ones({1, 2})).sum().backward();
      small.sgd.step();
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
        small.sgd.zero_grad();
        ddp(ones({1, 2})).sum().backward();
        small.sgd.step();
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
      data::DataLoader loader(numbers,
                              {.batch_size = 2,
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

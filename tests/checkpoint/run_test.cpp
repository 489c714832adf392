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

#include "checkpoint/small_run.h"
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

TEST(Run, FallsBackForADamagedByteAnywhere) {
  const TempDir dir;
  {
    Small small;
    checkpoint::Run run(dir.file("run"), {.every = 1});
    run.track(small.model, small.sgd);
    run.step(small.train());
    run.step(small.train());
    run.save();
  }
  const std::string whole = read_text(checkpoint_of(dir, 2));
  ASSERT_GT(whole.size(), 500U);
  int warnings = 0;
  for (std::size_t byte = 0; byte < whole.size(); ++byte) {
    std::string content = whole;
    content[byte] = static_cast<char>(content[byte] ^ (1 << (byte % 8)));
    write_text(checkpoint_of(dir, 2), content);
    const checkpoint::Generation found =
        Generations::newest_whole(dir.file("run/checkpoints"), [&](const std::string&) { ++warnings; });
    ASSERT_EQ(found.path, checkpoint_of(dir, 1)) << "byte " << byte;
  }
  EXPECT_EQ(warnings, static_cast<int>(whole.size()));
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
      const auto train = [&](double value) { return captured ? step(full({1, 2}, value)) : small.train(value); };
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

// The weights of the second layer are infinite in step 6. All gradients are then NaN, and only the forward pass tells
// where that began.
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
        hidden.fill_(HUGE_VAL);
      }
      Tensor loss = model(x).sum() * 1e-3;
      loss.backward();
      sgd.step();
      run.step(loss);
    }
  };
  EXPECT_THAT(message_of<ValueError>(train), StartsWith("step 6 (epoch 0): a gradient is not finite"));
  EXPECT_THAT(message_of<ValueError>(train),
              AllOf(StartsWith("Linear '1': the result [1, 4] has "), HasSubstr(" at element 0, "),
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
    checkpoint::Run run(dir.file("run"), {.every = 0});
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

}  // namespace
}  // namespace tandem::test

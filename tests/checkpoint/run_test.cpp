#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
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

TEST(Run, SavedAtTheEndOfAnEpochsBodyBeginsTheNextOne) {
  const TempDir dir;
  const data::TensorDataset numbers(arange(0, 6).to(DType::f32).reshape({6, 1}));
  std::vector<std::int64_t> epochs;
  int steps = 0;
  const auto train = [&](int stop_after) {
    nn::Linear model(1, 1);
    data::DataLoader loader(numbers, {.batch_size = 3});
    checkpoint::Run run(dir.file("run"), {.every = 0});
    run.track(model, loader);
    for (const std::int64_t epoch : run.epochs(3)) {
      if (stop_after-- == 0) return;
      loader.set_epoch(epoch);  // as in PyTorch
      for (const auto& batch : loader) {
        steps += batch.x.defined() ? 1 : 0;
        run.step();
      }
      run.log({{"epoch", epoch}});
      run.save();
      epochs.push_back(epoch);
    }
  };
  train(2);
  train(-1);
  EXPECT_THAT(epochs, ElementsAre(0, 1, 2));
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(read_text(dir.file("run/metrics.jsonl")), "{\"epoch\":0}\n{\"epoch\":1}\n{\"epoch\":2}\n");
}

TEST(Run, AnEpochWhoseLoopWasLeftByBreakIsOver) {
  const TempDir dir;
  const data::TensorDataset numbers(arange(0, 6).to(DType::f32).reshape({6, 1}));
  std::vector<float> seen;
  for (const int epochs : {1, 2}) {
    nn::Linear model(1, 1);
    data::DataLoader loader(numbers);
    checkpoint::Run run(dir.file("run"), {.every = 0});
    run.track(model, loader);
    for ([[maybe_unused]] const std::int64_t epoch : run.epochs(epochs)) {
      for (const auto& batch : loader) {
        seen.push_back(batch.x.item<float>());
        run.step();
        if (seen.back() == 1) {
          break;
        }
      }
    }
  }
  EXPECT_THAT(seen, ElementsAre(0, 1, 0, 1));
}

TEST(Run, StopsAtASignalBetweenEpochsToo) {
  const TempDir dir;
  nn::Linear model(1, 1);
  checkpoint::Run run(dir.file("run"));
  run.track(model);
  std::vector<std::int64_t> epochs;
  try {
    for (const std::int64_t epoch : run.epochs(3)) {
      run.step();
      std::raise(SIGTERM);
      epochs.push_back(epoch);
    }
    ADD_FAILURE() << "it went on";
  } catch (const Interrupted&) {
  }
  EXPECT_THAT(epochs, ElementsAre(0));
  EXPECT_EQ(run.epoch(), 1);
}

TEST(Run, TakesAFolderThatAKillLeftHalfMade) {
  const TempDir dir;
  fs::create_directories(dir.file("run/checkpoints"));
  write_text(dir.file("run/.job.tmp-0123456789abcdef"), "");
  write_text(dir.file("run/checkpoints/owner.tmp-0123456789abcdef"), "");
  EXPECT_NO_THROW(checkpoint::Run run(dir.file("run")));
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
                                EndsWith("checkpoints/owner', which says who may write here; nothing was written"))));
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
  checkpoint::Run run(dir.file("run"), {.every = 0});
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
  EXPECT_EQ(steps_in(dir), saved) << "once for the signal";
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

TEST(Run, LetsTheSecondSignalEndTheProcess) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer calls handlers later than the system does";
#endif
  for (const int signal : {SIGINT, SIGTERM}) {
    const TempDir dir;
    const pid_t child = ::fork();
    if (child == 0) {
      checkpoint::Run run(dir.file("run"));
      std::raise(signal);
      std::raise(signal == SIGINT ? SIGTERM : SIGINT);
      std::raise(signal);
      ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
  }
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

TEST(Run, LeavesAHandlerAloneThatTheProgramSetMeanwhile) {
  const TempDir dir;
  const auto handler = [](int) {};
  {
    checkpoint::Run run(dir.file("run"));
    ::signal(SIGTERM, handler);
  }
  EXPECT_TRUE(::signal(SIGTERM, SIG_DFL) == static_cast<void (*)(int)>(handler));
}

TEST(Run, DoesNotTakeAFolderThatHasOtherThings) {
  const TempDir dir;
  fs::create_directories(dir.file("run"));
  write_text(dir.file("run/metrics.jsonl"), "{\"epoch\":1}\n");
  EXPECT_THAT(message_of<IoError>([&] { checkpoint::Run run(dir.file("run")); }),
              HasSubstr("it exists and is not empty"));
  EXPECT_EQ(read_text(dir.file("run/metrics.jsonl")), "{\"epoch\":1}\n");
}

TEST(Run, SaysThatAFolderWithoutACheckpointBeginsAnew) {
  const TempDir dir;
  checkpoint::Run(dir.file("run")).log({{"epoch", 1}});
  Warnings warnings;
  checkpoint::Run run(dir.file("run"));
  EXPECT_THAT(warnings.texts(), ElementsAre(EndsWith("has no checkpoint yet: the run begins anew")));
  EXPECT_EQ(read_text(dir.file("run/metrics.jsonl")), "");
}

TEST(Run, KeepsItsNewestCheckpointBesideADamagedLaterOne) {
  const TempDir dir;
  for (const std::int64_t end : {3, 3}) {
    Warnings warnings;
    Small small;
    checkpoint::Run run(dir.file("run"), {.every = 1, .keep = 1});
    run.track(small.model, small.sgd);
    while (run.steps() < end - (run.is_resumed() ? 1 : 0)) {
      run.step(small.train());
    }
    run.save();
    if (!run.is_resumed()) {
      fs::copy(checkpoint_of(dir, 3), checkpoint_of(dir, 1));
      Generations(dir.file("run/checkpoints")).write(1, StateDict({{"x", ones({1})}}), {}, 5);
      fs::copy(checkpoint_of(dir, 3), checkpoint_of(dir, 9));
      damage(checkpoint_of(dir, 9));
    }
  }
  EXPECT_THAT(steps_in(dir), ElementsAre(9, 3));
}

TEST(Run, LooksAtTheTextsOfItsOwnFilesOnly) {
  const TempDir dir;
  {
    Small small;
    checkpoint::Run run(dir.file("run"));
    run.track(small.model, small.sgd);
    run.step(small.train());
    run.save();
  }
  const SafetensorsFile file(checkpoint_of(dir, 1));
  auto texts = file.metadata();
  std::erase_if(texts, [](const auto& text) { return text.first == "format"; });
  texts.insert(texts.begin(), {"folder", dir.file("elsewhere")});
  save(file.read_all(), checkpoint_of(dir, 1), {.metadata = texts});
  Small small;
  checkpoint::Run run(dir.file("run"));
  run.track(small.model, small.sgd);
  EXPECT_THROW(run.step(full({}, std::nan(""))), ValueError);
  EXPECT_FALSE(fs::exists(dir.file("elsewhere")));
  EXPECT_EQ(read_text(dir.file("run/checkpoints/not-finite")), "2");
}

TEST(Run, RestoresRandomNumbersWithoutALoopOverEpochsToo) {
  const TempDir dir;
  std::vector<std::vector<float>> drawn;
  for (const bool is_again : {false, true}) {
    Generator generator(is_again ? 99 : 5);
    const GeneratorScope scope(generator);
    Small small;
    checkpoint::Run run(dir.file("run"), {.every = 0});
    run.track(small.model, small.sgd);
    if (!is_again) {
      run.step(small.train());
      run.save();
    }
    drawn.push_back(rand({3}).to_vector<float>());
  }
  EXPECT_EQ(drawn[0], drawn[1]);
}

TEST(Run, RemovesWhatAKilledProcessLeft) {
  const TempDir dir;
  {
    const checkpoint::Run run(dir.file("run"));
  }
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

TEST(Run, ARestartedJobUsesItsFoldersAgain) {
  TANDEM_NEEDS_THREADS_IN_A_CHILD();
  const TempDir dir;
  // A process of the job with that many runs.
  const auto process = [&](const char* job, int runs) {
    EXPECT_TRUE(is_true_in_a_child([&] {
      fs::current_path(dir.path());
      ::setenv("TORCHELASTIC_RUN_ID", job, 1);
      for (int i = 0; i < runs; ++i) {
        Small small;
        checkpoint::Run run("", {.resume = false, .async_save = false, .program = "small"});
        run.track(small.model, small.sgd);
        run.step(small.train());
        run.save();
        std::ofstream("paths", std::ios::app) << run.folder()->path() << " " << run.steps() << "\n";
      }
      return true;
    }));
  };
  process("job-1", 2);
  process("job-1", 2);
  process("job-2", 1);
  std::istringstream lines(read_text(dir.file("paths")));
  std::vector<std::string> paths(5);
  std::vector<int> steps(5);
  for (std::size_t i = 0; i < 5; ++i) {
    lines >> paths[i] >> steps[i];
    EXPECT_THAT(paths[i], StartsWith("runs/small-"));
  }
  EXPECT_EQ(paths[2], paths[0]);
  EXPECT_EQ(paths[3], paths[1]);
  EXPECT_EQ(std::set<std::string>(paths.begin(), paths.end()).size(), 3U);
  EXPECT_THAT(steps, ElementsAre(1, 1, 2, 2, 1));
}

}  // namespace
}  // namespace tandem::test

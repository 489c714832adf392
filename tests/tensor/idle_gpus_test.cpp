#include <string>

#include <gtest/gtest.h>

#include <tandem/tensor/idle_gpus.h>

// The conditions for the warning about idle GPUs. These tests pass in the number of GPUs; cuda/idle_gpus_test.cpp uses
// real ones.

namespace tandem::detail {
namespace {

bool only_first(int gpu) { return gpu == 0; }
bool all(int) { return true; }

// The joined messages of `steps` steps.
std::string said(IdleGpus& watch, int steps, int gpus = 4, bool (*is_used)(int) = &only_first) {
  std::string text;
  for (int step = 0; step < steps; ++step) {
    text += watch.note_step(gpus, is_used);
  }
  return text;
}

TEST(IdleGpus, AreNamedOnceWhenATrainingGoesOn) {
  IdleGpus watch;
  EXPECT_EQ(said(watch, 99), "");
  EXPECT_EQ(
      said(watch, 1),
      "4 GPUs are visible, and after 100 steps nothing has used cuda:1, cuda:2, cuda:3: a model trains on several "
      "once it is wrapped (parallel::DataParallel), or as ranks (`tandem run -n 4 <program>`, "
      "parallel::DistributedDataParallel). Set CUDA_VISIBLE_DEVICES where fewer are meant");
  EXPECT_EQ(said(watch, 1000), "");
}

TEST(IdleGpus, AreNobodysBusinessWhereThereIsOne) {
  IdleGpus watch;
  EXPECT_EQ(said(watch, 200, 1), "");
}

TEST(IdleGpus, AreNotThereWhereAModelUsesThem) {
  IdleGpus watch;
  EXPECT_EQ(said(watch, 200, 4, &all), "");
}

TEST(IdleGpus, AreKnownToWhoTrainsInParallel) {
  IdleGpus watch;
  watch.note_parallel();
  EXPECT_EQ(said(watch, 200), "");
}

}  // namespace
}  // namespace tandem::detail

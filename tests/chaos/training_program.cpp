// A rank of a training that saves, to be killed and restarted: `tandem run -n N chaos_training FOLDER
// [RANK=FAILPOINT]`. The run is in FOLDER/run.

#include <stdlib.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include <tandem/tandem.h>

#include "checkpoint/resumed_training.h"

int main(int argc, char** argv) {
  using namespace tandem;
  if (argc < 2) {
    fmt::print(stderr, "usage: tandem run -n N chaos_training FOLDER [RANK=FAILPOINT]\n");
    return 2;
  }
  const std::string plan = argc > 2 ? argv[2] : "";
  if (const char* rank = std::getenv("RANK"); rank != nullptr && plan.starts_with(std::string(rank) + "=")) {
    ::setenv("TANDEM_FAILPOINT", plan.c_str() + plan.find('=') + 1, 1);
  }
  try {
    const parallel::ProcessGroupGuard guard;
    test::train_here(std::string(argv[1]) + "/run",
                     {.way = test::Way::ranks, .steps = 200, .pause = std::chrono::milliseconds(2), .logs_steps = true},
                     {.every = 9});
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}

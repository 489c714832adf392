#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <tandem/tandem.h>

#include "brakes/cases.h"
#include "brakes/wire.h"

namespace bench::brakes {

/// One training. Ranks are threads.
struct Setup {
  int ranks = 2;
  std::vector<std::int64_t> sizes = {784, 512, 512, 10};  // of the layers
  std::int64_t rows = 64;                                 // of a batch on a rank
  Wire wire = {};
  tandem::parallel::DistributedOptions ddp = {};
  std::function<void(int rank, int step)> before = {};                      // each step
  std::function<void(tandem::nn::Sequential& model, int rank)> after = {};  // each step
  double load_us = 0;                                                       // for a sample
  int workers = 0;                                                          // that load
  bool compresses = false;
  bool is_captured = false;
  bool uses_adam = true;
};

/// Trains for some seconds by DistributedDataParallel.
Seen train_ranks(const Setup& setup);
/// Trains likewise as one of several processes, the ranks of the default group.
Seen train_rank(const Setup& setup, tandem::parallel::ProcessGroup& group);
/// Trains for some seconds by steps of one's own, on one rank; each makes one optimiser step on `rows` rows.
Seen train_alone(std::int64_t rows, const std::function<void()>& step);

/// Linear layers of these sizes with ReLU between them.
tandem::nn::Sequential mlp(const std::vector<std::int64_t>& sizes);

}  // namespace bench::brakes

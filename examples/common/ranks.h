#pragma once

#include <functional>
#include <vector>

#include <tandem/core/device.h>

#include "cli.h"

// --parallel ddp: runs a sample as several ranks.

namespace example {

/// One of the ranks that train together.
struct Rank {
  int rank = 0;
  int size = 1;           // number of ranks
  tandem::Device device;  // device that the rank trains on

  /// Whether this rank narrates, prints the results and writes the files.
  bool leads() const noexcept { return rank == 0; }
};

/// The device of each rank on this host: --devices, else --device. If that has no number ("cpu", "cuda"), the first
/// rank gets number 0, the next 1, and so on. Throws ConfigError when the numbers of --devices and ranks differ.
std::vector<tandem::Device> devices_of_ranks(const CommonOptions& options, int ranks);

/// Runs `body` as the command line demands: once; with --parallel ddp and --ranks, as threads of this process; with
/// --parallel ddp under a launcher, as the rank that this process is. Throws the errors of `body`, spawn() and
/// ProcessGroupGuard.
void as_ranks(const CommonOptions& options, const std::function<void(const Rank&)>& body);

}  // namespace example

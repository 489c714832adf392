#pragma once

#include <functional>
#include <vector>

#include <tandem/core/device.h>

#include "cli.h"

// --parallel ddp: a sample as many ranks.

namespace example {

/// One of those that train together.
struct Rank {
  int rank = 0;
  int size = 1;           // how many there are
  tandem::Device device;  // what it trains on

  /// Who speaks for all: it narrates, prints the results and writes the files.
  bool leads() const noexcept { return rank == 0; }
};

/// The device of each rank on this host: --devices; else --device, and where that has no number ("cpu", "cuda") the
/// first rank's is 0, the next one's 1, and so on. Throws ConfigError when there are not as many --devices as ranks.
std::vector<tandem::Device> devices_of_ranks(const CommonOptions& options, int ranks);

/// Runs `body` as the command line says: by itself; or with --parallel ddp as threads of this process (--ranks), or as
/// what this process is to its launcher. Throws what `body` does, and what spawn() and ProcessGroupGuard throw.
void as_ranks(const CommonOptions& options, const std::function<void(const Rank&)>& body);

}  // namespace example

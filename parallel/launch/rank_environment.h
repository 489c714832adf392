#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/parallel/launch/launch.h>

// Internal: how a rank learns who it is.

namespace tandem::inline v0::parallel {

/// What the ranks of one attempt have in common.
struct JobFacts {
  std::string address;     // of the store
  std::uint16_t port = 0;  // of the store
  std::string token;       // in hexadecimal
  std::string run_id;      // the job's name
  int attempt = 0;         // from 0
  int threads = 0;         // for each rank; 0: the environment says so
};

/// Threads for each of `ranks` on this host; 0 where TANDEM_NUM_THREADS is set.
int threads_per_rank(int ranks);

/// This process's environment with torchrun's variables and ours for rank `local` of this node.
std::vector<std::string> rank_environment(const LaunchOptions& options, const JobFacts& job, int local);

}  // namespace tandem::inline v0::parallel

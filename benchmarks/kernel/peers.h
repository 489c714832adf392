#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernel/peer.h"

namespace bench::kernel {

/// A peer of a case that can be timed.
struct TimedPeer {
  std::string name;
  /// The seconds of a call, from a block of calls of about that length.
  std::function<double(double block_seconds)> seconds_per_call;
};

/// The peers that this machine has: a library (benchmarks/peers/kernels), which computes on the same memory, and a
/// program that runs PyTorch (benchmarks/peers/pytorch_kernels.py).
class Peers {
 public:
  /// Both may be empty. `program` is a command line for the shell. Throws Error if one cannot be started.
  Peers(const std::string& library, const std::string& program);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  /// The peers that can do `operation`, which outlives them.
  std::vector<TimedPeer> find(const Operation& operation);

 private:
  class Program;
  FindPeers find_ = nullptr;
  std::unique_ptr<Program> program_;
};

}  // namespace bench::kernel

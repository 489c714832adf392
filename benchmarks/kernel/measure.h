#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernel/case.h"
#include "kernel/peers.h"

namespace bench::kernel {

/// A case's medians over the blocks. Times are seconds per call.
struct Result {
  double ours = 0;
  double roofline = 0;                                // the longer one of both limits: memory, multiply-adds
  double share = 0;                                   // roofline / ours, block by block
  double bytes = 0;                                   // per call, of all passes
  bool by_arithmetic = false;                         // the multiply-adds take longer than the memory
  std::vector<std::pair<std::string, double>> peers;  // the peer's time / ours, block by block
};

/// Measures the kernel, its roofline and its peers in alternating blocks of about `block_seconds`; one call is the
/// least. Each thread's own clock counts, so that other programs disturb little, and all alike.
class Measurement {
 public:
  Measurement(Case& of, std::vector<TimedPeer> peers, double block_seconds);
  /// Measures one block of each. Returns the seconds of the kernel's.
  double block();
  Result result() const;

 private:
  struct Walk {
    Pass streams;
    std::vector<std::int64_t> widths;
    std::int64_t steps;
  };
  double walk_seconds() const;
  double arithmetic_seconds() const;

  Case& case_;
  std::vector<TimedPeer> peers_;
  double block_seconds_;
  std::vector<Walk> walks_;
  double bytes_ = 0;
  double walked_bytes_ = 0;  // steps are whole cache lines, so the last bytes of a stream may be left out
  std::int64_t calls_ = 1;
  std::vector<double> ours_, memory_, arithmetic_;
  std::vector<std::vector<double>> of_peers_;
};

}  // namespace bench::kernel

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include <tandem/core/step_times.h>

#include "scaling/ways.h"

namespace bench::scaling {

/// The phases of a step, then the rest of it: zero_grad() and a loss on gathered outputs.
inline constexpr std::size_t kParts = tandem::kPhases + 1;
/// "scatter", ..., "other"
const char* name_of_part(std::size_t part);

/// How long one way takes.
struct Timed {
  Way way;
  std::int64_t steps_per_block = 0;
  std::vector<double> us = {};              // per step, of each round
  std::array<double, kParts> part_us = {};  // medians; from blocks of their own, since counting takes time, too
};

/// What was measured.
struct Measured {
  std::vector<Timed> ways;
  std::int64_t left_out = 0;   // rounds in which our threads had to wait for a core for longer than in these
  std::int64_t disturbed = 0;  // of these rounds, those in which they waited for more than 1 % of a block's time
};

/// Times the ways in turn, a block of each to a round and in another order in each, so that what slows the machine down
/// slows all of them: what is to be compared are numbers of one round. Wall times. Goes on until `rounds` rounds were
/// not disturbed by other programs, at most for 4 * `rounds`, and returns the `rounds` that were disturbed the least.
/// `progress(round)` is called before each, the first being 0.
Measured measure(const Spec& spec, const std::vector<Way>& ways, tandem::DeviceType type, std::int64_t rounds,
                 double block_seconds, const std::function<void(std::int64_t)>& progress);

}  // namespace bench::scaling

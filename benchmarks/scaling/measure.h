#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include <tandem/core/step_times.h>

#include "scaling/ways.h"

namespace bench::scaling {

/// The phases of a step, followed by the rest: zero_grad(), and the loss if it is computed on gathered outputs.
inline constexpr std::size_t kParts = tandem::kPhases + 1;
/// The name of a part: "scatter", ..., "other".
const char* name_of_part(std::size_t part);

/// The times of one way.
struct Timed {
  Way way;
  std::int64_t steps_per_block = 0;
  std::vector<double> us = {};              // per step, of each round
  std::array<double, kParts> part_us = {};  // medians, from blocks of their own because counting takes time
};

/// All measurements.
struct Measured {
  std::vector<Timed> ways;
  std::int64_t left_out = 0;   // rounds dropped because our threads waited longer for a core
  std::int64_t disturbed = 0;  // rounds kept in which they waited for more than 1 % of a block
};

/// Times the ways in turn: each round has one block of each way, in random order, so that disturbances of the machine
/// hit all ways alike. Compare only numbers of one round. Times are wall-clock times. Stops after `rounds` rounds
/// without disturbance by other programs, or after 4 * `rounds` rounds, and returns the `rounds` least disturbed ones.
/// Calls `progress(round)`, counting from 0, before each round.
Measured measure(const Spec& spec, const std::vector<Way>& ways, tandem::DeviceType type, std::int64_t rounds,
                 double block_seconds, const std::function<void(std::int64_t)>& progress);

}  // namespace bench::scaling

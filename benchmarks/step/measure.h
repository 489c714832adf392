#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "step/step.h"

namespace bench {

/// Times of two ways of training, measured in alternating blocks.
struct Pairs {
  std::vector<double> step_us;   // of the step, per block
  std::vector<double> floor_us;  // of the floor's block in the same pair
  std::vector<double> ratios;    // of step to floor, per pair
  std::int64_t steps_per_block = 0;
  std::int64_t left_out = 0;   // pairs dropped because our threads waited longer for a core
  std::int64_t disturbed = 0;  // pairs kept in which they waited for more than 1 % of the time
};

/// Times pairs of blocks. Each pair has one block of equal steps for each way, in random order, after a warm-up step,
/// so that disturbances of the machine hit both. With one thread times are processor time, otherwise wall-clock time.
/// Stops after `blocks` pairs without disturbance by other programs, or after 4 * `blocks` pairs, and returns the
/// `blocks` least disturbed ones.
Pairs time_pairs(Step& step, Step& floor, std::int64_t blocks, double block_seconds);

/// Seconds of that many steps, after one warm-up step that refills the caches. Processor time if there is one thread;
/// see now().
double seconds_of(Step& step, std::int64_t steps, bool one_thread);

/// The number of steps that fill a block of that length; at least 1.
std::int64_t steps_for(Step& step, double block_seconds, bool one_thread);

double median(std::vector<double> values);

/// A 95 % confidence interval for the median of the distribution that the values come from. Its limits are two of the
/// values, chosen by the binomial distribution alone.
std::pair<double, double> median_interval(std::vector<double> values);

}  // namespace bench

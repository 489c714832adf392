#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "step/step.h"

namespace bench {

/// How long two ways of training take, block by block in turn.
struct Pairs {
  std::vector<double> step_us;   // of each block, per step
  std::vector<double> floor_us;  // of the block beside it
  std::vector<double> ratios;    // of each pair
  std::int64_t steps_per_block = 0;
  std::int64_t left_out = 0;   // pairs in which our threads had to wait for a core for longer than in these
  std::int64_t disturbed = 0;  // of these pairs, those in which they waited for more than 1 % of the time
};

/// One block of equal steps each to a pair, in either order, after a step that does not count, so that what slows the
/// machine down slows both. In processor time where there is one thread, else by the clock on the wall. Goes on until
/// `blocks` pairs were not disturbed by other programs, at most for 4 * `blocks`, and returns the `blocks` that were
/// disturbed the least.
Pairs time_pairs(Step& step, Step& floor, std::int64_t blocks, double block_seconds);

/// Seconds of that many steps, after one that does not count: it finds the caches as another way of training left them.
/// In processor time where there is one thread (now()).
double seconds_of(Step& step, std::int64_t steps, bool one_thread);

/// How many steps fill a block of that length; one is the least.
std::int64_t steps_for(Step& step, double block_seconds, bool one_thread);

double median(std::vector<double> values);

/// Where the median of what the values are drawn from lies, with 95 % confidence: two of the values, chosen by the
/// binomial distribution alone.
std::pair<double, double> median_interval(std::vector<double> values);

}  // namespace bench

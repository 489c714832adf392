#pragma once

#include <cstdint>
#include <vector>

#include "scaling/ddp/training.h"

namespace bench::ddp {

/// Cost of an all-reduce of n bytes: alpha + beta * n seconds, measured with nothing else running.
struct LinkCost {
  double alpha = 0;
  double beta = 0;
  double seconds(std::int64_t bytes) const { return alpha + beta * static_cast<double>(bytes); }
};
/// Fits the cost to planned all-reduces of 4 KiB and of `bytes`. A collective; the result is the same on all ranks.
LinkCost measure_link(tandem::parallel::ProcessGroup& group, std::int64_t bytes);

/// An undisturbed step: buckets leave in order, each once it is ready and the previous one has arrived.
struct Schedule {
  Course course;  // medians of the slowest rank
  LinkCost link;
  std::vector<std::int64_t> bucket_bytes;

  double exchange() const;
  /// Lower bound of a step: forward, then backward and the exchange in parallel, then the optimiser.
  double seconds() const;
};
/// Measures a schedule over `steps` steps. A collective; the result is the same on all ranks.
Schedule measure_schedule(RankTraining& training, tandem::parallel::ProcessGroup& group, int steps);

/// The largest value over all ranks, for each position. A collective.
std::vector<double> largest(std::vector<double> values, tandem::parallel::ProcessGroup& group);

}  // namespace bench::ddp

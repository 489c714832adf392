#pragma once

#include <cstdint>
#include <vector>

#include "scaling/ddp/training.h"

namespace bench::ddp {

/// What an all-reduce of n bytes costs: alpha + beta * n seconds, measured on nothing else.
struct LinkCost {
  double alpha = 0;
  double beta = 0;
  double seconds(std::int64_t bytes) const { return alpha + beta * static_cast<double>(bytes); }
};
/// A collective; the same on all ranks. From 4 KiB and from `bytes`, planned and waited for.
LinkCost measure_link(tandem::parallel::ProcessGroup& group, std::int64_t bytes);

/// A step that nothing delays: buckets leave in order, each when it is ready and the one before it has arrived.
struct Schedule {
  Course course;  // medians, of the slowest rank
  LinkCost link;
  std::vector<std::int64_t> bucket_bytes;

  double exchange() const;
  /// Forward, then backward and the exchange beside each other, then the optimiser: what a step cannot be faster than.
  double seconds() const;
};
/// A collective; the same on all ranks.
Schedule measure_schedule(RankTraining& training, tandem::parallel::ProcessGroup& group, int steps);

/// The largest of all ranks' values. A collective.
std::vector<double> largest(std::vector<double> values, tandem::parallel::ProcessGroup& group);

}  // namespace bench::ddp

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "scaling/ddp/schedule.h"

namespace bench::ddp {

/// The measurements, on rank 0.
struct Report {
  std::string model;
  Spec spec;  // its batch is the batch of each rank
  int ranks = 1;
  std::string backend;
  int threads = 1;                                // per rank
  double difference = 0;                          // RankTraining::difference()
  std::array<std::vector<double>, kWays> us;      // per step, one value per round
  std::array<std::vector<double>, kWays> waited;  // share of each block that its threads waited for a core
  Schedule schedule;

  std::string text() const;
  std::string json() const;

 private:
  std::int64_t rows(Way way) const;
  const std::vector<double>& of(Way way) const { return us[static_cast<std::size_t>(way)]; }
  /// Rows per second relative to one rank with the joined batch, by round.
  std::vector<double> rates(Way way) const;
  std::vector<double> differences(Way way, Way other) const;
};

}  // namespace bench::ddp

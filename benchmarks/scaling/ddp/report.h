#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "scaling/ddp/schedule.h"

namespace bench::ddp {

/// What was measured, on rank 0.
struct Report {
  std::string model;
  Spec spec;  // its batch: of each rank
  int ranks = 1;
  std::string backend;
  int threads = 1;                                // of each rank
  double difference = 0;                          // RankTraining::difference()
  std::array<std::vector<double>, kWays> us;      // per step, of each round
  std::array<std::vector<double>, kWays> waited;  // the share of each block in which its threads waited for a core
  Schedule schedule;

  std::string text() const;
  std::string json() const;

 private:
  std::int64_t rows(Way way) const;
  const std::vector<double>& of(Way way) const { return us[static_cast<std::size_t>(way)]; }
  /// Rows per second against one rank's with the joined batch, by rounds.
  std::vector<double> rates(Way way) const;
  std::vector<double> differences(Way way, Way other) const;
};

}  // namespace bench::ddp

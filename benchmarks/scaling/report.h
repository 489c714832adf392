#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scaling/measure.h"

namespace bench::scaling {

/// What the command line asks for.
struct Settings {
  std::string model;
  Spec spec;  // its batch: of all devices together (strong), or of one (weak)
  int devices = 1;
  int threads_per_device = 1;
  bool strong = true;
  bool weak = true;
  bool plain = true;
  bool data_parallel = true;
  tandem::DeviceType type = tandem::DeviceType::cpu;
  std::int64_t rounds = 1;
};

/// A line of the table: a way, and what it is held against. Indices into Plan::ways.
struct Row {
  bool strong = true;
  int devices = 1;
  std::string name;  // "plain", "one part", "plain threads", "dp", "dp_loss"
  std::size_t way = 0;
  std::size_t base = 0;                // one device with the threads of one
  std::optional<std::size_t> threads;  // one device with the threads of all; on CPUs
  std::optional<std::size_t> part;     // base, with the part of the batch that a device gets
};

/// Everything to measure.
struct Plan {
  std::vector<Way> ways;  // each once
  std::vector<Row> rows;
};
Plan plan_of(const Settings& settings);

/// A median and its 95 % interval.
struct Ratio {
  double value = 0;
  std::pair<double, double> interval;
};

/// Plan and what was measured.
struct Report {
  Settings settings;
  Plan plan;
  Measured measured;
  double worst_difference = 0;  // of gradients and losses, before anything was timed

  const Timed& timed(std::size_t way) const { return measured.ways[way]; }
  /// Images per second of one way in relation to another's, paired by round.
  Ratio rate(std::size_t way, std::size_t other) const;
  /// rate() of a row to its base, divided by its devices; of "one part": what would be reached if nothing but that part
  /// had to be computed.
  Ratio efficiency(const Row& row) const;

  std::string table() const;
  std::string json() const;
  /// Throws IoError.
  void draw(const std::string& path) const;
  /// Why it is not faster: where the time goes that the most devices need beyond their share of one device's. Nothing
  /// to say about one device.
  std::string reason() const;

 private:
  std::string rate_line(const Row& row) const;
  std::string phase_line(const Row& row) const;
};

}  // namespace bench::scaling

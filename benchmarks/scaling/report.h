#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scaling/measure.h"

namespace bench::scaling {

/// The command line's settings.
struct Settings {
  std::string model;
  Spec spec;  // its batch is for all devices together (strong), or per device (weak)
  int devices = 1;
  int threads_per_device = 1;
  bool strong = true;
  bool weak = true;
  bool plain = true;
  bool data_parallel = true;
  tandem::DeviceType type = tandem::DeviceType::cpu;
  std::int64_t rounds = 1;
};

/// A line of the table: a way and the ways that it is compared with, as indices into Plan::ways.
struct Row {
  bool strong = true;
  int devices = 1;
  std::string name;  // "plain", "one part", "plain threads", "dp", "dp_loss"
  std::size_t way = 0;
  std::size_t base = 0;                // one device with the threads of one device
  std::optional<std::size_t> threads;  // one device with the threads of all devices; on CPUs only
  std::optional<std::size_t> part;     // base with the batch of one device
};

/// All measurements to take.
struct Plan {
  std::vector<Way> ways;  // distinct ways
  std::vector<Row> rows;
};
Plan plan_of(const Settings& settings);

/// A median and its 95 % interval.
struct Ratio {
  double value = 0;
  std::pair<double, double> interval;
};

/// The plan and its results.
struct Report {
  Settings settings;
  Plan plan;
  Measured measured;
  double worst_difference = 0;  // of gradients and losses, before any timing

  const Timed& timed(std::size_t way) const { return measured.ways[way]; }
  /// Images per second of one way relative to another, paired by round.
  Ratio rate(std::size_t way, std::size_t other) const;
  /// rate() of a row to its base, divided by the number of devices. For "one part" this is the efficiency that devices
  /// would reach if nothing but computing their parts took time.
  Ratio efficiency(const Row& row) const;

  std::string table() const;
  std::string json() const;
  /// Draws the curves as a picture. Throws IoError.
  void draw(const std::string& path) const;
  /// Explains why training is not faster: lists where the largest number of devices spends time beyond its share of one
  /// device's time. Empty for one device.
  std::string reason() const;

 private:
  std::string rate_line(const Row& row) const;
  std::string phase_line(const Row& row) const;
};

}  // namespace bench::scaling

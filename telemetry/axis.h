#pragma once

#include <string>
#include <vector>

// Internal: the scale of one axis of a plot and its round tick values.

namespace tandem::inline v0::telemetry {

struct Tick {
  double place;  // 0: start of the axis, 1: end
  std::string label;
};

/// The scale of an axis. long double holds the span of any two doubles, and steps far below the smallest double.
class Axis {
 public:
  enum class Kind {
    linear,    // linear scale with some room around the data
    log,       // logarithmic scale with some room around the data
    position,  // linear scale that ends where the data end
    counter,   // like position, for whole numbers: epochs, steps
  };

  /// An axis for finite data from `low` to `high`; a log axis needs data above zero.
  Axis(Kind kind, double low, double high);

  /// Position of a value: 0 at the start of the axis, 1 at the end.
  double place(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  void add_linear_ticks(long double low, long double high);
  void add_log_ticks();

  Kind kind_;
  long double low_;  // of a log axis: log10 of the value
  long double high_;
  std::vector<Tick> ticks_;
};

}  // namespace tandem::inline v0::telemetry

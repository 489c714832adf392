#pragma once

#include <string>
#include <vector>

// Internal: the scale of one axis of a plot and its round tick values.

namespace tandem::inline v0::telemetry {

struct Tick {
  double place;  // 0: start of the axis, 1: its end
  std::string label;
};

/// long double holds the span of any two doubles, and steps far below the smallest double.
class Axis {
 public:
  enum class Kind {
    linear,    // some room around the data
    log,       // the same, logarithmic
    position,  // ends where the data end
    counter,   // the same for whole numbers: epochs, steps
  };

  /// For finite data from `low` to `high`; above zero for log.
  Axis(Kind kind, double low, double high);

  /// Where a value lies: 0 at the start of the axis, 1 at its end.
  double place(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  void add_linear_ticks(long double low, long double high);
  void add_log_ticks();

  Kind kind_;
  long double low_;  // of a log axis: log10
  long double high_;
  std::vector<Tick> ticks_;
};

}  // namespace tandem::inline v0::telemetry

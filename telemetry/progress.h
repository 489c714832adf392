#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0::telemetry {

/// Options of Progress.
struct ProgressOptions {
  std::int64_t total = 0;      ///< units in one epoch; 0 if unknown: no bar, no percentage, no eta
  std::string unit = "steps";  ///< plural of the unit that advance() counts: "images"
  std::string label = {};      ///< text at the start of the line
  bool enabled = true;         ///< false: nothing is written
  int fd = 2;                  ///< descriptor to write to; is never closed and must stay valid
  double line_seconds = 10;    ///< minimum time between lines within an epoch when fd is not a terminal
};

/// The progress of a training run on one line:
///
///   epoch 3/30  ━━━━━━────  62%  loss 0.143  acc 97.8%  41,200 images/s  eta 0:03
///
/// On a terminal the line is redrawn in place, at most 10 times a second, and cut to the current width of the terminal.
/// (A line that wraps because the window shrinks stays wrapped; the next one fits.) The cursor is never hidden or moved
/// to another row, so a killed program leaves a working terminal. NO_COLOR turns colour off. If fd is no terminal, or
/// with TERM=dumb, complete plain lines are written: one per epoch, and one every `line_seconds` in between.
///
/// The rate is an exponential average with weight 0.3 for the newest sample. The time between end_epoch() and
/// start_epoch() does not count. The eta covers all remaining epochs.
///
/// Drawing happens only inside these calls. An advance() that draws nothing costs one read of the clock, well below 1
/// us. Failed writes are ignored: no run should die of its progress line. Belongs to one thread.
class TANDEM_API Progress {
 public:
  /// Throws ConfigError for a negative total, fd or line_seconds.
  explicit Progress(ProgressOptions options);
  /// Draws the last state, unless an epoch has just ended, and moves to a new line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Starts counting from zero. `epoch` counts from 1; `epochs` is 0 if unknown.
  void start_epoch(std::int64_t epoch, std::int64_t epochs = 0);
  /// Counts `units` more.
  void advance(std::int64_t units = 1);
  /// Shows "name value" from the next redraw on until set again. Values appear in the order of first use.
  void set(std::string_view name, double value);
  void set(std::string_view name, std::string_view value);
  /// Ends the epoch with one complete line: the epoch, `summary` (if empty, the values last set), mean rate and
  /// duration. The rate covers the time until the last advance(), the duration the time until this call.
  void end_epoch(std::string_view summary = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null when not enabled
};

}  // namespace tandem::inline v0::telemetry

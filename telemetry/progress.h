#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0::telemetry {

/// What a Progress shows, and where.
struct ProgressOptions {
  std::int64_t total = 0;      ///< units in one epoch; 0 when not known: no bar, no percentage, no eta
  std::string unit = "steps";  ///< what advance() counts: "images"
  std::string label = {};      ///< shown first
  bool enabled = true;         ///< false: nothing is ever written
  int fd = 2;                  ///< where to write; stays open and must stay valid
  double line_seconds = 10;    ///< least time between the lines within an epoch where fd is not a terminal
};

/// How far a training run is, on one line:
///
///   epoch 3/30  ━━━━━━────  62%  loss 0.143  acc 97.8%  41,200 images/s  eta 0:03
///
/// On a terminal the line is redrawn in place, at most 10 times a second, cut to the width that the terminal has at
/// that moment (a line wrapped by shrinking the window stays as it is; the next one fits). The cursor is never hidden
/// or moved to another row, so a killed program leaves a working terminal. NO_COLOR turns the colour off. Elsewhere,
/// and with TERM=dumb, whole plain lines are written: one an epoch, and one every `line_seconds` in between.
///
/// The rate is that of the last moments: an exponential average with weight 0.3 for the newest; time between
/// end_epoch() and start_epoch() does not count. The eta is for all epochs that are left.
///
/// Nothing is drawn but in these calls; advance() costs one look at the clock, well below 1 us, when it draws nothing.
/// Failing writes are ignored: no run should die of its progress line. Belongs to one thread.
class TANDEM_API Progress {
 public:
  /// Throws ConfigError for a negative total, fd or line_seconds.
  explicit Progress(ProgressOptions options);
  /// Draws the last state, unless an epoch just ended, and moves on to a new line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Starts counting from zero. `epoch` is counted from 1; `epochs` is 0 when not known.
  void start_epoch(std::int64_t epoch, std::int64_t epochs = 0);
  /// `units` more are done.
  void advance(std::int64_t units = 1);
  /// Shows "name value" from the next redraw on, in the order of first use, until set again.
  void set(std::string_view name, double value);
  void set(std::string_view name, std::string_view value);
  /// Leaves one whole line behind: the epoch, `summary` (if empty, the values last set), mean rate and duration; the
  /// rate is up to the last advance(), the duration up to this call.
  void end_epoch(std::string_view summary = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null when not enabled
};

}  // namespace tandem::inline v0::telemetry

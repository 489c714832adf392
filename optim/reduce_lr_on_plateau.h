#pragma once

#include <cstdint>

#include <tandem/optim/optimizer.h>
#include <tandem/tensor/state_dict.h>

namespace tandem::inline v0::optim {

/// Whether a smaller or a larger metric is better.
enum class PlateauMode : unsigned char { min, max };
/// Whether `threshold` is relative to the best value or absolute.
enum class ThresholdMode : unsigned char { rel, abs };

/// Options of ReduceLROnPlateau, with PyTorch's names and defaults.
struct ReduceLROnPlateauOptions {
  PlateauMode mode = PlateauMode::min;  // whether a smaller or a larger metric is better
  double factor = 0.1;                  // the rate is multiplied by this
  std::int64_t patience = 10;           // epochs without improvement that are tolerated
  double threshold = 1e-4;              // least improvement: a share of the best value (rel), or a difference (abs)
  ThresholdMode threshold_mode = ThresholdMode::rel;  // meaning of `threshold`
  std::int64_t cooldown = 0;                          // epochs to ignore after a reduction
  double min_lr = 0;                                  // lower bound of the rate
  double eps = 1e-8;                                  // smaller changes of the rate are not made
};

/// Multiplies every group's rate by `factor` once a metric has stopped improving. Call step(metric) after each epoch's
/// evaluation: `schedule.step(validation_loss)`. NaN is no improvement. The optimiser must outlive this object.
class TANDEM_API ReduceLROnPlateau {
 public:
  /// Throws ConfigError for options out of range.
  explicit ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options = {});
  ReduceLROnPlateau(const ReduceLROnPlateau&) = delete;
  ReduceLROnPlateau& operator=(const ReduceLROnPlateau&) = delete;

  /// Call once per epoch with the metric to improve.
  void step(double metric);
  /// The current rate of the first group.
  double last_lr() const noexcept { return optimizer_.learning_rate(); }
  /// The best metric so far; infinite before the first step.
  double best() const noexcept { return best_; }

  /// "best" (f64), "num_bad_epochs", "cooldown_counter", "last_epoch" (i64). The rates are part of the optimiser's
  /// state.
  StateDict state_dict() const;
  /// Restores a state_dict(). All problems come in one ConfigError, and then nothing is changed.
  void load_state_dict(const StateDict& state);

 private:
  bool is_better(double metric) const;

  Optimizer& optimizer_;
  ReduceLROnPlateauOptions options_;
  double best_;
  std::int64_t num_bad_epochs_ = 0;
  std::int64_t cooldown_counter_ = 0;
  std::int64_t last_epoch_ = 0;
};

}  // namespace tandem::inline v0::optim

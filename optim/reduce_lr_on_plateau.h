#pragma once

#include <cstdint>

#include <tandem/optim/optimizer.h>
#include <tandem/tensor/state_dict.h>

namespace tandem::inline v0::optim {

/// Whether smaller or larger is better.
enum class PlateauMode : unsigned char { min, max };
/// What `threshold` is a part of: the best value, or nothing.
enum class ThresholdMode : unsigned char { rel, abs };

/// PyTorch's names and defaults.
struct ReduceLROnPlateauOptions {
  PlateauMode mode = PlateauMode::min;  // whether a smaller or a larger metric is better
  double factor = 0.1;                  // what the rate is multiplied with
  std::int64_t patience = 10;           // how many epochs without an improvement are borne
  double threshold = 1e-4;              // by how much the best must be beaten: by a part of it (rel) or by this (abs)
  ThresholdMode threshold_mode = ThresholdMode::rel;  // how `threshold` counts
  std::int64_t cooldown = 0;                          // epochs after a reduction that do not count
  double min_lr = 0;                                  // the rate never falls below
  double eps = 1e-8;                                  // a smaller change of the rate is not made
};

/// Multiplies every group's rate by `factor` once a metric has stopped improving. Call step(metric) after each epoch's
/// evaluation: `schedule.step(validation_loss)`. A metric that is not a number is no improvement. The optimiser must
/// outlive it.
class TANDEM_API ReduceLROnPlateau {
 public:
  /// Throws ConfigError for options out of range.
  explicit ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options = {});
  ReduceLROnPlateau(const ReduceLROnPlateau&) = delete;
  ReduceLROnPlateau& operator=(const ReduceLROnPlateau&) = delete;

  /// Once per epoch, with what is to get better.
  void step(double metric);
  /// Of the first group.
  double last_lr() const noexcept { return optimizer_.learning_rate(); }
  /// Infinite before the first step.
  double best() const noexcept { return best_; }

  /// "best" (f64), "num_bad_epochs", "cooldown_counter", "last_epoch" (i64). The rates are in the optimiser's state.
  StateDict state_dict() const;
  /// All problems come in one ConfigError, and nothing is changed then.
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

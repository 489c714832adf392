#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tandem/optim/optimizer.h>
#include <tandem/tensor/state_dict.h>

namespace tandem::inline v0::optim {

/// Sets the learning rates of an optimiser's groups as a function of the number of step() calls (one per epoch, or one
/// per batch). Each group has its own base: the rate it had when the first schedule was made. The rates depend only on
/// the base and the count. A rate set by hand therefore lasts until the next step(), and if two schedules are both
/// stepped, the last one wins; see SequentialLR. The optimiser must outlive the schedule.
class TANDEM_API LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  /// Increments the count and sets the rates.
  void step();
  /// The current rate of the first group.
  double last_lr() const noexcept { return optimizer_.learning_rate(); }
  /// The current rate of each group.
  std::vector<double> last_lrs() const;

  /// "last_epoch" (number of step() calls, i64), "base_lrs" and "last_lrs" (one per group, f64). Options are not
  /// included.
  virtual StateDict state_dict() const;
  /// Continues from a state_dict() and restores its rates. All problems come in one ConfigError, and then nothing is
  /// changed.
  void load_state_dict(const StateDict& state);

 protected:
  friend class SequentialLR;

  /// `name` appears in messages and must outlive the schedule.
  explicit LRScheduler(Optimizer& optimizer, const char* name = "LRScheduler");
  /// Sets the groups' rates for `count` calls of step(). A schedule that does not start at the base calls it with 0 in
  /// its constructor.
  virtual void apply(std::int64_t count) = 0;
  /// Sets the rate of each group to rate(base of the group).
  template <class Rate>
  void set_rates(Rate&& rate) {
    for (std::size_t g = 0; g < bases_.size(); ++g) {
      optimizer_.param_groups()[g].set_lr(rate(bases_[g]));
    }
  }
  /// Replaces the groups' rates as bases; one per group.
  void set_bases(std::vector<double> bases) { bases_ = std::move(bases); }
  /// The optimiser whose rates this schedule sets.
  Optimizer& optimizer() const noexcept { return optimizer_; }
  /// Applies the values that read() found.
  using Restore = std::function<void()>;
  /// Reads the values that a derived schedule adds to the state, under names that begin with `prefix`. The returned
  /// function applies them once the whole state is known to be valid.
  virtual Restore read(class StateReader& reader, const std::string& prefix);

 private:
  std::shared_ptr<detail::Watched> watched_;  // watched by captured steps
  Optimizer& optimizer_;
  const char* name_;
  std::vector<double> bases_;
  std::int64_t count_ = 0;
};

/// Options of StepLR.
struct StepLROptions {
  std::int64_t step_size = 0;  // calls of step() from one drop to the next; must be given
  double gamma = 0.1;          // the rate is multiplied by this at each drop
};

/// base * gamma ^ floor(count / step_size).
class TANDEM_API StepLR : public LRScheduler {
 public:
  /// Throws ConfigError unless step_size >= 1 and gamma >= 0.
  StepLR(Optimizer& optimizer, const StepLROptions& options);

 private:
  void apply(std::int64_t count) override;
  StepLROptions options_;
};

/// Options of MultiStepLR.
struct MultiStepLROptions {
  std::vector<std::int64_t> milestones;  // counts of step() at which the rate drops
  double gamma = 0.1;                    // factor per milestone
};

/// base * gamma ^ (number of milestones <= count). Milestones ascend; a repeated milestone counts twice.
class TANDEM_API MultiStepLR : public LRScheduler {
 public:
  MultiStepLR(Optimizer& optimizer, const MultiStepLROptions& options);

 private:
  void apply(std::int64_t count) override;
  MultiStepLROptions options_;
};

/// Options of ExponentialLR.
struct ExponentialLROptions {
  double gamma = 0.9;  // factor per call of step()
};

/// base * gamma ^ count.
class TANDEM_API ExponentialLR : public LRScheduler {
 public:
  ExponentialLR(Optimizer& optimizer, const ExponentialLROptions& options);

 private:
  void apply(std::int64_t count) override;
  ExponentialLROptions options_;
};

/// Options of LinearLR.
struct LinearLROptions {
  double start_factor = 1.0 / 3;  // factor at the start
  double end_factor = 1;          // factor at the end and afterwards
  std::int64_t total_iters = 5;   // calls of step() from start to end
};

/// base times a factor that moves linearly from start_factor to end_factor and then stays: a warm-up. The constructor
/// applies the first factor.
class TANDEM_API LinearLR : public LRScheduler {
 public:
  LinearLR(Optimizer& optimizer, const LinearLROptions& options = {});

 private:
  void apply(std::int64_t count) override;
  LinearLROptions options_;
};

/// Options of CosineAnnealingLR.
struct CosineAnnealingLROptions {
  std::int64_t T_max = 0;  // calls of step() from the base rate down to eta_min; must be given
  double eta_min = 0;      // the lowest rate
};

/// eta_min + (base - eta_min) * (1 + cos(pi * count / T_max)) / 2 (Loshchilov and Hutter, "SGDR", 2017).
class TANDEM_API CosineAnnealingLR : public LRScheduler {
 public:
  /// Throws ConfigError unless T_max >= 1 and eta_min >= 0.
  CosineAnnealingLR(Optimizer& optimizer, const CosineAnnealingLROptions& options);

 private:
  void apply(std::int64_t count) override;
  CosineAnnealingLROptions options_;
};

/// base * lr_lambda(count). The constructor applies the first factor. A state does not contain the function.
class TANDEM_API LambdaLR : public LRScheduler {
 public:
  LambdaLR(Optimizer& optimizer, std::function<double(std::int64_t count)> lr_lambda);

 private:
  void apply(std::int64_t count) override;
  std::function<double(std::int64_t)> lr_lambda_;
};

/// One schedule after another: schedule i + 1 (counting from 0) takes over after milestones[i] calls of step().
///
///     optim::LinearLR warm_up(sgd, {.start_factor = 0.01, .total_iters = 5});
///     optim::CosineAnnealingLR cosine(sgd, {.T_max = 95});
///     optim::SequentialLR schedule(sgd, {&warm_up, &cosine}, {5});
///
/// The schedules must outlive this object and must not be stepped themselves.
class TANDEM_API SequentialLR : public LRScheduler {
 public:
  /// Throws ConfigError for a schedule of another optimiser, for milestones that do not ascend, and unless there is
  /// exactly one milestone fewer than schedules.
  SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> schedulers, std::vector<std::int64_t> milestones);

  /// Includes "schedulers.<i>." with the state of each schedule.
  StateDict state_dict() const override;

 private:
  void apply(std::int64_t count) override;
  Restore read(StateReader& reader, const std::string& prefix) override;
  std::vector<LRScheduler*> schedulers_;
  std::vector<std::int64_t> milestones_;
};

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

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

/// Sets the learning rates of an optimiser's groups as a function of how often step() was called (once per epoch, or
/// per batch), each from a base of its own: the rate it had when the first schedule was made. The rates are a function
/// of the base and the count alone, so a rate that was set by hand lasts until the next step(), and of two schedules
/// that are both stepped the last one counts; see SequentialLR. The optimiser must outlive it.
class TANDEM_API LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  /// Counts, and sets the rate.
  void step();
  /// The rate of the first group now.
  double last_lr() const noexcept { return optimizer_.learning_rate(); }
  /// The rate of each group now.
  std::vector<double> last_lrs() const;

  /// "last_epoch" (calls of step(), i64), "base_lrs" and "last_lrs" (one per group, f64). Options are not in it.
  virtual StateDict state_dict() const;
  /// Goes on where that left off and sets the rates to what they were. All problems come in one ConfigError, and
  /// nothing is changed then.
  void load_state_dict(const StateDict& state);

 protected:
  friend class SequentialLR;

  /// `name` is for messages and must stay.
  explicit LRScheduler(Optimizer& optimizer, const char* name = "LRScheduler");
  /// Sets what the groups have after `count` calls of step(). A schedule that does not start at the base calls this
  /// with 0 when it is made.
  virtual void apply(std::int64_t count) = 0;
  /// Sets the rate of each group to rate(its base).
  template <class Rate>
  void set_rates(Rate&& rate) {
    for (std::size_t g = 0; g < bases_.size(); ++g) {
      optimizer_.param_groups()[g].set_lr(rate(bases_[g]));
    }
  }
  /// Instead of the groups' rates; one per group.
  void set_bases(std::vector<double> bases) { bases_ = std::move(bases); }
  /// The optimiser whose rates are set.
  Optimizer& optimizer() const noexcept { return optimizer_; }
  /// Takes over what read() found.
  using Restore = std::function<void()>;
  /// Reads from a state, under names that begin with `prefix`, what this adds to "last_epoch" and so on; the function
  /// that comes back takes it over once all is known to be right.
  virtual Restore read(class StateReader& reader, const std::string& prefix);

 private:
  std::shared_ptr<detail::Watched> watched_;  // by captured steps
  Optimizer& optimizer_;
  const char* name_;
  std::vector<double> bases_;
  std::int64_t count_ = 0;
};

/// How often the rate drops, and to what part.
struct StepLROptions {
  std::int64_t step_size = 0;  // calls of step() from one drop to the next; must be given
  double gamma = 0.1;          // what the rate is multiplied by
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

/// When the rate drops, and how far.
struct MultiStepLROptions {
  std::vector<std::int64_t> milestones;  // counts of step() at which the rate drops
  double gamma = 0.1;                    // factor per milestone
};

/// base * gamma ^ (how many milestones are <= count). Milestones ascend; one that comes twice counts twice.
class TANDEM_API MultiStepLR : public LRScheduler {
 public:
  MultiStepLR(Optimizer& optimizer, const MultiStepLROptions& options);

 private:
  void apply(std::int64_t count) override;
  MultiStepLROptions options_;
};

/// What the rate is multiplied with.
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

/// From where to where, and how long.
struct LinearLROptions {
  double start_factor = 1.0 / 3;  // factor of the first rate
  double end_factor = 1;          // factor that stays
  std::int64_t total_iters = 5;   // calls of step() from one to the other
};

/// base times a factor that goes along a line from start_factor to end_factor and stays there: a warm-up. The first
/// factor holds at once.
class TANDEM_API LinearLR : public LRScheduler {
 public:
  LinearLR(Optimizer& optimizer, const LinearLROptions& options = {});

 private:
  void apply(std::int64_t count) override;
  LinearLROptions options_;
};

/// How long the rate falls, and how far.
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

/// base * lr_lambda(count). The first factor holds at once. A state does not hold the function.
class TANDEM_API LambdaLR : public LRScheduler {
 public:
  LambdaLR(Optimizer& optimizer, std::function<double(std::int64_t count)> lr_lambda);

 private:
  void apply(std::int64_t count) override;
  std::function<double(std::int64_t)> lr_lambda_;
};

/// One schedule after the other: number i + 1 takes over, counting from 0, when step() was called milestones[i] times.
///
///     optim::LinearLR warm_up(sgd, {.start_factor = 0.01, .total_iters = 5});
///     optim::CosineAnnealingLR cosine(sgd, {.T_max = 95});
///     optim::SequentialLR schedule(sgd, {&warm_up, &cosine}, {5});
///
/// The schedules must outlive it, and are not stepped themselves.
class TANDEM_API SequentialLR : public LRScheduler {
 public:
  /// Throws ConfigError for a schedule of another optimiser, milestones that do not ascend, and unless there is one
  /// milestone less than schedules.
  SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> schedulers, std::vector<std::int64_t> milestones);

  /// Also "schedulers.<i>." with what each of them has.
  StateDict state_dict() const override;

 private:
  void apply(std::int64_t count) override;
  Restore read(StateReader& reader, const std::string& prefix) override;
  std::vector<LRScheduler*> schedulers_;
  std::vector<std::int64_t> milestones_;
};

}  // namespace tandem::inline v0::optim

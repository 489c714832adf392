#pragma once

#include <cstdint>

#include <tandem/optim/optimizer.h>

namespace tandem::inline v0::optim {

/// Sets an optimiser's learning rate as a function of how often step() was called (once per epoch, or per batch).
/// The optimiser must outlive it. The rate at construction is the base.
class TANDEM_API LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  /// Counts, and sets the rate.
  void step();
  /// The optimiser's rate now.
  double last_lr() const noexcept { return optimizer_.learning_rate(); }

 protected:
  explicit LRScheduler(Optimizer& optimizer) : optimizer_(optimizer), base_(optimizer.learning_rate()) {}
  /// The rate after `count` calls of step().
  virtual double rate(double base, std::int64_t count) const = 0;

 private:
  Optimizer& optimizer_;
  double base_;
  std::int64_t count_ = 0;
};

/// How often the rate drops, and to what part.
struct StepLROptions {
  std::int64_t step_size = 1;  // calls of step() from one drop to the next
  double gamma = 0.1;          // what the rate is multiplied by
};

/// base * gamma ^ floor(count / step_size).
class TANDEM_API StepLR : public LRScheduler {
 public:
  /// Throws ConfigError unless step_size >= 1 and gamma >= 0.
  StepLR(Optimizer& optimizer, const StepLROptions& options);

 private:
  double rate(double base, std::int64_t count) const override;
  StepLROptions options_;
};

/// How long the rate falls, and how far.
struct CosineAnnealingLROptions {
  std::int64_t T_max = 1;  // calls of step() from the base rate down to eta_min
  double eta_min = 0;      // the lowest rate
};

/// eta_min + (base - eta_min) * (1 + cos(pi * count / T_max)) / 2 (Loshchilov and Hutter, "SGDR", 2017).
class TANDEM_API CosineAnnealingLR : public LRScheduler {
 public:
  /// Throws ConfigError unless T_max >= 1 and eta_min >= 0.
  CosineAnnealingLR(Optimizer& optimizer, const CosineAnnealingLROptions& options);

 private:
  double rate(double base, std::int64_t count) const override;
  CosineAnnealingLROptions options_;
};

}  // namespace tandem::inline v0::optim

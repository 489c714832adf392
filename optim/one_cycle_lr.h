#pragma once

#include <cstdint>
#include <vector>

#include <tandem/optim/lr_scheduler.h>

namespace tandem::inline v0::optim {

/// The shape of the curve between two rates.
enum class AnnealStrategy : unsigned char { cos, linear };

/// Options of OneCycleLR, with PyTorch's names and defaults.
struct OneCycleLROptions {
  std::vector<double> max_lr;                            // {0.1}: one for all groups, or one for each
  std::int64_t total_steps = 0;                          // 0: epochs * steps_per_epoch
  std::int64_t epochs = 0;                               // with steps_per_epoch, instead of total_steps
  std::int64_t steps_per_epoch = 0;                      // steps per epoch
  double pct_start = 0.3;                                // share of the cycle in which the rate grows
  AnnealStrategy anneal_strategy = AnnealStrategy::cos;  // the curve up and down
  bool cycle_momentum = true;                            // opposite to the rate, between max_momentum and base_momentum
  double base_momentum = 0.85;                           // momentum at the highest rate
  double max_momentum = 0.95;                            // momentum at the lowest rates
  double div_factor = 25;                                // the first rate is max_lr / div_factor
  double final_div_factor = 1e4;                         // the last rate is the first one / final_div_factor
  bool three_phase = false;                              // fall for as long as the rise, then down to the last rate
};

/// One cycle: up to max_lr and down to nearly zero. Call step() after every batch (Smith and Topin,
/// "Super-convergence", 2019). The rates that the groups had before are ignored. The momentum() of each group (Adam's
/// first beta) moves in the opposite direction. One difference from PyTorch: the step() after the last batch stays at
/// the last rate, where PyTorch goes one step beyond it.
class TANDEM_API OneCycleLR : public LRScheduler {
 public:
  /// Throws ConfigError for options out of range, and for an optimiser without momentum when momentum is to be cycled.
  /// step() throws ConfigError after more than total_steps calls.
  OneCycleLR(Optimizer& optimizer, const OneCycleLROptions& options);

 private:
  void apply(std::int64_t count) override;
  double anneal(double from, double to, double done) const;

  OneCycleLROptions options_;
};

}  // namespace tandem::inline v0::optim

#include <tandem/optim/lr_scheduler.h>

#include <cmath>
#include <numbers>

#include <tandem/core/check.h>

namespace tandem::inline v0::optim {

void LRScheduler::step() { optimizer_.set_learning_rate(rate(base_, ++count_)); }

StepLR::StepLR(Optimizer& optimizer, const StepLROptions& options) : LRScheduler(optimizer), options_(options) {
  check<ConfigError>(options.step_size >= 1 && options.gamma >= 0,
                     "StepLR: needs step_size >= 1 and gamma >= 0, got {} and {}", options.step_size, options.gamma);
}

double StepLR::rate(double base, std::int64_t count) const {
  const std::int64_t drops = count / options_.step_size;
  return base * std::pow(options_.gamma, static_cast<double>(drops));
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, const CosineAnnealingLROptions& options)
    : LRScheduler(optimizer), options_(options) {
  check<ConfigError>(options.T_max >= 1 && options.eta_min >= 0,
                     "CosineAnnealingLR: needs T_max >= 1 and eta_min >= 0, got {} and {}", options.T_max,
                     options.eta_min);
}

double CosineAnnealingLR::rate(double base, std::int64_t count) const {
  const double angle = std::numbers::pi * static_cast<double>(count) / static_cast<double>(options_.T_max);
  return options_.eta_min + (base - options_.eta_min) * (1 + std::cos(angle)) / 2;
}

}  // namespace tandem::inline v0::optim

#include <tandem/optim/param_group.h>

#include <cmath>

#include <tandem/core/check.h>

namespace tandem::inline v0::optim {

void Group::check_options(const Options& options) const {
  check<ConfigError>(std::isfinite(options.lr) && options.lr >= 0,
                     "{}: the learning rate must be a number >= 0, got {}", optimizer_, options.lr);
  check<ConfigError>(!options.initial_lr || (std::isfinite(*options.initial_lr) && *options.initial_lr >= 0),
                     "{}: initial_lr must be a number >= 0, got {}", optimizer_, options.initial_lr.value_or(0));
  check<ConfigError>(std::isfinite(options.weight_decay) && options.weight_decay >= 0,
                     "{}: weight_decay must be a number >= 0, got {}", optimizer_, options.weight_decay);
  if (options.momentum == options_.momentum) {
    return;
  }
  check<ConfigError>(options_.momentum.has_value(), "{}: there is no momentum to be set", optimizer_);
  const double momentum = options.momentum.value_or(0);
  check<ConfigError>(momentum >= 0 && momentum < 1, "{}: momentum must be in [0, 1), got {}", optimizer_, momentum);
  check<ConfigError>((momentum == 0) == (*options_.momentum == 0),
                     "{}: momentum cannot change from {} to {}: choose when the optimiser is made whether there is any",
                     optimizer_, *options_.momentum, momentum);
}

void Group::set_options(const Options& options) {
  check_options(options);
  options_ = options;
}

void Group::set_lr(double lr) {
  Options options = options_;
  options.lr = lr;
  set_options(options);
}

void Group::set_weight_decay(double weight_decay) {
  Options options = options_;
  options.weight_decay = weight_decay;
  set_options(options);
}

void Group::set_momentum(double momentum) {
  Options options = options_;
  options.momentum = momentum;
  set_options(options);
}

}  // namespace tandem::inline v0::optim

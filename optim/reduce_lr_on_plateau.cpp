#include <tandem/optim/reduce_lr_on_plateau.h>

#include <algorithm>
#include <limits>

#include <tandem/core/check.h>
#include <tandem/optim/state_reader.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::optim {

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options)
    : optimizer_(optimizer),
      options_(options),
      best_(options.mode == PlateauMode::min ? std::numeric_limits<double>::infinity()
                                             : -std::numeric_limits<double>::infinity()) {
  check<ConfigError>(options.factor >= 0 && options.factor < 1, "ReduceLROnPlateau: factor must be in [0, 1), got {}",
                     options.factor);
  check<ConfigError>(options.patience >= 0 && options.cooldown >= 0,
                     "ReduceLROnPlateau: patience and cooldown must be >= 0, got {} and {}", options.patience,
                     options.cooldown);
  check<ConfigError>(options.threshold >= 0 && options.min_lr >= 0 && options.eps >= 0,
                     "ReduceLROnPlateau: threshold, min_lr and eps must be >= 0, got {}, {} and {}", options.threshold,
                     options.min_lr, options.eps);
}

bool ReduceLROnPlateau::is_better(double metric) const {
  const bool relative = options_.threshold_mode == ThresholdMode::rel;
  if (options_.mode == PlateauMode::min) {
    return metric < (relative ? best_ * (1 - options_.threshold) : best_ - options_.threshold);
  }
  return metric > (relative ? best_ * (1 + options_.threshold) : best_ + options_.threshold);
}

void ReduceLROnPlateau::step(double metric) {
  ++last_epoch_;
  if (is_better(metric)) {
    best_ = metric;
    num_bad_epochs_ = 0;
  } else {
    ++num_bad_epochs_;
  }
  if (cooldown_counter_ > 0) {
    --cooldown_counter_;
    num_bad_epochs_ = 0;
  }
  if (num_bad_epochs_ > options_.patience) {
    for (Group& group : optimizer_.param_groups()) {
      const double reduced = std::max(group.lr() * options_.factor, options_.min_lr);
      if (group.lr() - reduced > options_.eps) {
        group.set_lr(reduced);
      }
    }
    cooldown_counter_ = options_.cooldown;
    num_bad_epochs_ = 0;
  }
}

StateDict ReduceLROnPlateau::state_dict() const {
  StateDict state;
  state.set("best", tensor(best_, {.dtype = DType::f64}));
  state.set("num_bad_epochs", tensor(num_bad_epochs_));
  state.set("cooldown_counter", tensor(cooldown_counter_));
  state.set("last_epoch", tensor(last_epoch_));
  return state;
}

void ReduceLROnPlateau::load_state_dict(const StateDict& state) {
  StateReader reader(state, "ReduceLROnPlateau");
  const double best = reader.number("best", best_);
  const std::int64_t num_bad_epochs = reader.integer("num_bad_epochs");
  const std::int64_t cooldown_counter = reader.integer("cooldown_counter");
  const std::int64_t last_epoch = reader.integer("last_epoch");
  reader.finish();
  best_ = best;
  num_bad_epochs_ = num_bad_epochs;
  cooldown_counter_ = cooldown_counter;
  last_epoch_ = last_epoch;
}

}  // namespace tandem::inline v0::optim

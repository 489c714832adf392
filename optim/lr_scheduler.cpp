#include <tandem/optim/lr_scheduler.h>

#include <cmath>
#include <limits>
#include <numbers>

#include <fmt/ranges.h>

#include <tandem/core/check.h>
#include <tandem/core/warning.h>
#include <tandem/optim/state_reader.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::optim {

LRScheduler::LRScheduler(Optimizer& optimizer, const char* name)
    : watched_(std::make_shared<detail::Watched>()), optimizer_(optimizer), name_(name) {
  for (Group& group : optimizer.param_groups()) {
    group.fix_initial_lr();
    bases_.push_back(group.initial_lr());
  }
}

void LRScheduler::step() {
  watched_->watch();
  detail::host_work("LRScheduler::step", [this] {
    if (count_ == 0 && optimizer_.calls_ == 0) {
      core::warn_once(
          fmt::format("{}: step() before the first step() of its optimiser {}: the first rate of the schedule "
                      "is never used. Call it after the optimiser's [TDM-W206]",
                      name_, optimizer_.name()));
    }
    apply(count_ + 1);
    ++count_;
  });
}

std::vector<double> LRScheduler::last_lrs() const {
  std::vector<double> rates;
  for (const Group& group : optimizer_.param_groups()) {
    rates.push_back(group.lr());
  }
  return rates;
}

StateDict LRScheduler::state_dict() const {
  StateDict state;
  state.set("last_epoch", tensor(count_));
  state.set("base_lrs", from_data(bases_));
  state.set("last_lrs", from_data(last_lrs()));
  return state;
}

void LRScheduler::load_state_dict(const StateDict& state) {
  StateReader reader(state, name_);
  const Restore restore = read(reader, "");
  reader.finish();
  restore();
}

LRScheduler::Restore LRScheduler::read(StateReader& reader, const std::string& prefix) {
  const std::int64_t count = reader.integer(prefix + "last_epoch");
  std::vector<double> bases = reader.numbers(prefix + "base_lrs", bases_.size());
  std::vector<double> rates = reader.numbers(prefix + "last_lrs", bases_.size());
  const auto note_bad = [&](const char* name, const std::vector<double>& values) {
    for (const double value : values) {
      if (!std::isfinite(value) || value < 0) {
        reader.note(
            fmt::format("value of '{}{}': a rate must be a number >= 0, got {}", prefix, name, core::printable(value)));
      }
    }
  };
  note_bad("base_lrs", bases);
  note_bad("last_lrs", rates);
  return [this, count, bases = std::move(bases), rates = std::move(rates)] {
    count_ = count;
    bases_ = bases;
    for (std::size_t g = 0; g < rates.size(); ++g) {
      optimizer_.param_groups()[g].set_lr(rates[g]);
    }
  };
}

StepLR::StepLR(Optimizer& optimizer, const StepLROptions& options)
    : LRScheduler(optimizer, "StepLR"), options_(options) {
  check<ConfigError>(options.step_size >= 1 && options.gamma >= 0,
                     "StepLR: needs step_size >= 1 and gamma >= 0, got {} and {}", options.step_size, options.gamma);
}

void StepLR::apply(std::int64_t count) {
  const double factor = std::pow(options_.gamma, static_cast<double>(count / options_.step_size));
  set_rates([=](double base) { return base * factor; });
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, const MultiStepLROptions& options)
    : LRScheduler(optimizer, "MultiStepLR"), options_(options) {
  check<ConfigError>(!options.milestones.empty() &&
                         std::is_sorted(options.milestones.begin(), options.milestones.end()) && options.gamma >= 0,
                     "MultiStepLR: needs milestones, which ascend, and gamma >= 0, got [{}] and {}",
                     fmt::join(options.milestones, ", "), options.gamma);
}

void MultiStepLR::apply(std::int64_t count) {
  const auto& milestones = options_.milestones;
  const auto reached = std::upper_bound(milestones.begin(), milestones.end(), count) - milestones.begin();
  const double factor = std::pow(options_.gamma, static_cast<double>(reached));
  set_rates([=](double base) { return base * factor; });
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, const ExponentialLROptions& options)
    : LRScheduler(optimizer, "ExponentialLR"), options_(options) {
  check<ConfigError>(options.gamma >= 0, "ExponentialLR: gamma must be >= 0, got {}", options.gamma);
}

void ExponentialLR::apply(std::int64_t count) {
  const double factor = std::pow(options_.gamma, static_cast<double>(count));
  set_rates([=](double base) { return base * factor; });
}

LinearLR::LinearLR(Optimizer& optimizer, const LinearLROptions& options)
    : LRScheduler(optimizer, "LinearLR"), options_(options) {
  check<ConfigError>(options.start_factor > 0 && options.start_factor <= 1 && options.end_factor >= 0 &&
                         options.end_factor <= 1 && options.total_iters >= 1,
                     "LinearLR: needs start_factor in (0, 1], end_factor in [0, 1] and total_iters >= 1, got {}, {} "
                     "and {}",
                     options.start_factor, options.end_factor, options.total_iters);
  apply(0);
}

void LinearLR::apply(std::int64_t count) {
  const double done =
      static_cast<double>(std::min(count, options_.total_iters)) / static_cast<double>(options_.total_iters);
  const double factor = options_.start_factor + (options_.end_factor - options_.start_factor) * done;
  set_rates([=](double base) { return base * factor; });
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, const CosineAnnealingLROptions& options)
    : LRScheduler(optimizer, "CosineAnnealingLR"), options_(options) {
  check<ConfigError>(options.T_max >= 1 && options.eta_min >= 0,
                     "CosineAnnealingLR: needs T_max >= 1 and eta_min >= 0, got {} and {}", options.T_max,
                     options.eta_min);
}

void CosineAnnealingLR::apply(std::int64_t count) {
  const double angle = std::numbers::pi * static_cast<double>(count) / static_cast<double>(options_.T_max);
  set_rates([&](double base) { return options_.eta_min + (base - options_.eta_min) * (1 + std::cos(angle)) / 2; });
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::function<double(std::int64_t)> lr_lambda)
    : LRScheduler(optimizer, "LambdaLR"), lr_lambda_(std::move(lr_lambda)) {
  check<ConfigError>(lr_lambda_ != nullptr, "LambdaLR: there is no function");
  apply(0);
}

void LambdaLR::apply(std::int64_t count) {
  const double factor = lr_lambda_(count);
  check<ConfigError>(std::isfinite(factor) && factor >= 0,
                     "LambdaLR: the function must return a number >= 0, got {} for count {}", factor, count);
  set_rates([=](double base) { return base * factor; });
}

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> schedulers,
                           std::vector<std::int64_t> milestones)
    : LRScheduler(optimizer, "SequentialLR"), schedulers_(std::move(schedulers)), milestones_(std::move(milestones)) {
  check<ConfigError>(schedulers_.size() == milestones_.size() + 1,
                     "SequentialLR: needs one milestone less than schedulers, got {} and {} schedulers",
                     milestones_.size(), schedulers_.size());
  for (std::size_t i = 0; i < schedulers_.size(); ++i) {
    check<ConfigError>(schedulers_[i] != nullptr, "SequentialLR: scheduler {} is null", i);
    check<ConfigError>(&schedulers_[i]->optimizer_ == &optimizer, "SequentialLR: scheduler {} is of another optimizer",
                       i);
  }
  for (std::size_t i = 0; i < milestones_.size(); ++i) {
    const std::int64_t before = i == 0 ? 0 : milestones_[i - 1];
    check<ConfigError>(milestones_[i] > before, "SequentialLR: milestones must be > 0 and ascend, got {} after {}",
                       milestones_[i], before);
  }
  apply(0);
}

void SequentialLR::apply(std::int64_t count) {
  const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), count);
  const std::int64_t start = next == milestones_.begin() ? 0 : *(next - 1);
  schedulers_[static_cast<std::size_t>(next - milestones_.begin())]->apply(count - start);
}

StateDict SequentialLR::state_dict() const {
  StateDict state = LRScheduler::state_dict();
  for (std::size_t i = 0; i < schedulers_.size(); ++i) {
    for (const auto& [name, value] : schedulers_[i]->state_dict()) {
      state.set(fmt::format("schedulers.{}.{}", i, name), value);
    }
  }
  return state;
}

LRScheduler::Restore SequentialLR::read(StateReader& reader, const std::string& prefix) {
  std::vector<Restore> all;
  for (std::size_t i = 0; i < schedulers_.size(); ++i) {
    all.push_back(schedulers_[i]->read(reader, fmt::format("{}schedulers.{}.", prefix, i)));
  }
  all.push_back(LRScheduler::read(reader, prefix));
  return [all = std::move(all)] {
    for (const Restore& restore : all) {
      restore();
    }
  };
}

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

#include <tandem/optim/one_cycle_lr.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <tandem/core/check.h>

namespace tandem::inline v0::optim {

namespace {

// The rate at which a phase starts or ends. Momentum moves between its two values or stays.
enum class Rate : unsigned char { initial, max, min };
struct CyclePhase {
  double end;  // step at which `to` is reached
  Rate from;
  Rate to;
};

std::vector<CyclePhase> phases(const OneCycleLROptions& options) {
  const auto steps = static_cast<double>(options.total_steps);
  const double up = options.pct_start * steps - 1;
  if (!options.three_phase) {
    return {{up, Rate::initial, Rate::max}, {steps - 1, Rate::max, Rate::min}};
  }
  return {{up, Rate::initial, Rate::max},
          {2 * options.pct_start * steps - 2, Rate::max, Rate::initial},
          {steps - 1, Rate::initial, Rate::min}};
}

void check_options(const OneCycleLROptions& options, std::size_t groups) {
  check<ConfigError>(options.max_lr.size() == 1 || options.max_lr.size() == groups,
                     "OneCycleLR: max_lr needs one rate, or one for each of the {} groups, got {}", groups,
                     options.max_lr.size());
  for (const double rate : options.max_lr) {
    check<ConfigError>(std::isfinite(rate) && rate >= 0, "OneCycleLR: max_lr must be a number >= 0, got {}", rate);
  }
  check<ConfigError>(options.total_steps >= 1,
                     "OneCycleLR: needs total_steps >= 1, or epochs and steps_per_epoch >= 1, got {}, {} and {}",
                     options.total_steps, options.epochs, options.steps_per_epoch);
  check<ConfigError>(options.pct_start >= 0 && options.pct_start <= 1,
                     "OneCycleLR: pct_start must be in [0, 1], got {}", options.pct_start);
  check<ConfigError>(!options.three_phase || options.pct_start <= 0.5,
                     "OneCycleLR: with three_phase pct_start must be in [0, 0.5], got {}", options.pct_start);
  const auto in_range = [](double momentum) { return momentum > 0 && momentum < 1; };
  check<ConfigError>(!options.cycle_momentum || (in_range(options.base_momentum) && in_range(options.max_momentum)),
                     "OneCycleLR: base_momentum and max_momentum must be in (0, 1), got {} and {}",
                     options.base_momentum, options.max_momentum);
  check<ConfigError>(options.div_factor > 0 && options.final_div_factor > 0,
                     "OneCycleLR: div_factor and final_div_factor must be > 0, got {} and {}", options.div_factor,
                     options.final_div_factor);
}

}  // namespace

OneCycleLR::OneCycleLR(Optimizer& optimizer, const OneCycleLROptions& options)
    : LRScheduler(optimizer, "OneCycleLR"), options_(options) {
  const std::span<const Group> groups = optimizer.param_groups();
  if (options_.total_steps == 0 && options_.epochs >= 1 && options_.steps_per_epoch >= 1) {
    options_.total_steps = options_.epochs * options_.steps_per_epoch;
  }
  check_options(options_, groups.size());
  for (const Group& group : groups) {
    check<ConfigError>(!options_.cycle_momentum || group.momentum().value_or(0) != 0,
                       "OneCycleLR: cycle_momentum needs an optimizer with momentum, and this {} has none; give it "
                       "one, or set cycle_momentum = false",
                       optimizer.name());
  }
  options_.max_lr.resize(groups.size(), options_.max_lr.front());
  set_bases(options_.max_lr);
  apply(0);
}

double OneCycleLR::anneal(double from, double to, double done) const {
  if (options_.anneal_strategy == AnnealStrategy::linear) {
    return (to - from) * done + from;
  }
  return to + (from - to) / 2 * (std::cos(std::numbers::pi * done) + 1);
}

void OneCycleLR::apply(std::int64_t count) {
  check<ConfigError>(count <= options_.total_steps,
                     "OneCycleLR: step() was called {} times, but the cycle has {} steps; set total_steps to the "
                     "number of batches in the whole training",
                     count, options_.total_steps);
  const std::vector<CyclePhase> all = phases(options_);
  const auto step = static_cast<double>(count);
  std::size_t i = 0;
  while (i + 1 < all.size() && step > all[i].end) {
    ++i;
  }
  const double start = i == 0 ? 0 : all[i - 1].end;
  const double length = all[i].end - start;
  const double done = length > 0 ? std::min((step - start) / length, 1.0) : 1.0;

  const auto rate = [&](Rate which, double max) {
    const double initial = max / options_.div_factor;
    return which == Rate::max ? max : which == Rate::initial ? initial : initial / options_.final_div_factor;
  };
  const auto momentum = [&](Rate which) { return which == Rate::max ? options_.base_momentum : options_.max_momentum; };
  set_rates([&](double max) { return anneal(rate(all[i].from, max), rate(all[i].to, max), done); });
  if (options_.cycle_momentum) {
    for (Group& group : optimizer().param_groups()) {
      group.set_momentum(anneal(momentum(all[i].from), momentum(all[i].to), done));
    }
  }
}

}  // namespace tandem::inline v0::optim

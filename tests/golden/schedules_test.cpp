#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/optim/lr_scheduler.h>
#include <tandem/optim/one_cycle_lr.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>

#include "golden_file.h"

// Compares the rates (and momenta) of every schedule with PyTorch's, step by step, for two groups.

namespace tandem::golden {
namespace {

using nlohmann::json;
using std::make_unique;

const json& schedules_file() {
  static const json read = read_family("schedules");
  return read;
}

optim::OneCycleLROptions one_cycle(const json& spec) {
  optim::OneCycleLROptions o{.max_lr = spec.at("max_lr")};
  o.total_steps = spec.value("total_steps", o.total_steps);
  o.epochs = spec.value("epochs", o.epochs);
  o.steps_per_epoch = spec.value("steps_per_epoch", o.steps_per_epoch);
  o.pct_start = spec.value("pct_start", o.pct_start);
  if (spec.value("anneal_strategy", "cos") == "linear") o.anneal_strategy = optim::AnnealStrategy::linear;
  o.cycle_momentum = spec.value("cycle_momentum", o.cycle_momentum);
  o.base_momentum = spec.value("base_momentum", o.base_momentum);
  o.max_momentum = spec.value("max_momentum", o.max_momentum);
  o.div_factor = spec.value("div_factor", o.div_factor);
  o.final_div_factor = spec.value("final_div_factor", o.final_div_factor);
  o.three_phase = spec.value("three_phase", o.three_phase);
  return o;
}

optim::ReduceLROnPlateauOptions plateau(const json& spec) {
  optim::ReduceLROnPlateauOptions o;
  if (spec.value("mode", "min") == "max") o.mode = optim::PlateauMode::max;
  if (spec.value("threshold_mode", "rel") == "abs") o.threshold_mode = optim::ThresholdMode::abs;
  o.factor = spec.value("factor", o.factor);
  o.patience = spec.value("patience", o.patience);
  o.threshold = spec.value("threshold", o.threshold);
  o.cooldown = spec.value("cooldown", o.cooldown);
  o.min_lr = spec.value("min_lr", o.min_lr);
  return o;
}

/// A schedule described by a case, together with its component schedules.
class Schedule {
 public:
  Schedule(optim::Optimizer& optimizer, const std::string& type, const json& spec) {
    if (type == "ReduceLROnPlateau") {
      plateau_.emplace(optimizer, plateau(spec));
    } else {
      last_ = make(optimizer, type, spec);
    }
  }
  void step(double metric) { plateau_ ? plateau_->step(metric) : last_->step(); }

 private:
  optim::LRScheduler* make(optim::Optimizer& optimizer, const std::string& type, const json& spec) {
    std::unique_ptr<optim::LRScheduler> made;
    if (type == "StepLR") {
      made = make_unique<optim::StepLR>(
          optimizer, optim::StepLROptions{.step_size = spec.at("step_size"), .gamma = spec.at("gamma")});
    } else if (type == "MultiStepLR") {
      made = make_unique<optim::MultiStepLR>(
          optimizer, optim::MultiStepLROptions{.milestones = spec.at("milestones"), .gamma = spec.at("gamma")});
    } else if (type == "ExponentialLR") {
      made = make_unique<optim::ExponentialLR>(optimizer, optim::ExponentialLROptions{.gamma = spec.at("gamma")});
    } else if (type == "LinearLR") {
      optim::LinearLROptions o;
      o.start_factor = spec.value("start_factor", o.start_factor);
      o.end_factor = spec.value("end_factor", o.end_factor);
      o.total_iters = spec.value("total_iters", o.total_iters);
      made = make_unique<optim::LinearLR>(optimizer, o);
    } else if (type == "CosineAnnealingLR") {
      made = make_unique<optim::CosineAnnealingLR>(
          optimizer, optim::CosineAnnealingLROptions{.T_max = spec.at("T_max"), .eta_min = spec.value("eta_min", 0.0)});
    } else if (type == "LambdaLR") {
      made = make_unique<optim::LambdaLR>(
          optimizer, [](std::int64_t count) { return 1 / (1 + 0.1 * static_cast<double>(count)); });
    } else if (type == "OneCycleLR") {
      made = make_unique<optim::OneCycleLR>(optimizer, one_cycle(spec));
    } else if (type == "SequentialLR") {
      std::vector<optim::LRScheduler*> parts;
      for (const json& part : spec.at("schedulers")) {
        parts.push_back(make(optimizer, part.at("type"), part.at("options")));
      }
      made = make_unique<optim::SequentialLR>(optimizer, parts, spec.at("milestones"));
    } else {
      throw std::out_of_range("schedule '" + type + "' is not known to these tests");
    }
    return all_.emplace_back(std::move(made)).get();
  }

  std::deque<std::unique_ptr<optim::LRScheduler>> all_;
  optim::LRScheduler* last_ = nullptr;
  std::optional<optim::ReduceLROnPlateau> plateau_;
};

class GoldenSchedule : public ::testing::TestWithParam<std::size_t> {};

TEST_P(GoldenSchedule, EqualsPyTorch) {
  const json& spec = schedules_file().at("cases").at(GetParam());
  SCOPED_TRACE(fmt::format("{} {}", spec.at("type").get<std::string>(), spec.at("options").dump()));
  const auto metrics = schedules_file().at("metrics").get<std::vector<double>>();
  std::vector<optim::ParamGroup> groups;
  for (const double lr : schedules_file().at("base_lrs").get<std::vector<double>>()) {
    groups.push_back({.params = {zeros({1}, {.requires_grad = true})}, .lr = lr});
  }
  optim::SGD sgd(groups, {.lr = 1, .momentum = 0.95});
  Schedule schedule(sgd, spec.at("type"), spec.at("options"));
  for (std::size_t step = 0; step < metrics.size(); ++step) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const double rate = spec.at("rates").at(step).at(g);
      const double momentum = spec.at("momentums").at(step).at(g);
      ASSERT_NEAR(sgd.param_groups()[g].lr(), rate, 1e-12 * rate + 1e-16) << "step " << step << ", group " << g;
      ASSERT_NEAR(*sgd.param_groups()[g].momentum(), momentum, 1e-12) << "step " << step << ", group " << g;
    }
    schedule.step(metrics[step]);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenSchedule, ::testing::Range<std::size_t>(0, schedules_file().at("cases").size()),
                         [](const auto& test) {
                           const std::string type = schedules_file().at("cases").at(test.param).at("type");
                           return fmt::format("{}_{}", type, test.param);
                         });

}  // namespace
}  // namespace tandem::golden

#include <cctype>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/nn/container.h>
#include <tandem/nn/functional.h>
#include <tandem/optim/clip.h>
#include <tandem/optim/lr_scheduler.h>

#include "golden_file.h"
#include "optimizers.h"

// Compares whole training runs with PyTorch: every optimiser with its options, schedules, and clipping.

namespace tandem::golden {
namespace {

using nlohmann::json;

const json& training_file() {
  static const json read = read_family("training");
  return read;
}

std::unique_ptr<optim::LRScheduler> make_scheduler(const json& spec, optim::Optimizer& optimizer) {
  if (spec.is_null()) {
    return nullptr;
  }
  const std::string type = spec.at("type");
  if (type == "CosineAnnealingLR") {
    return std::make_unique<optim::CosineAnnealingLR>(
        optimizer, optim::CosineAnnealingLROptions{.T_max = spec.at("T_max"), .eta_min = spec.value("eta_min", 0.0)});
  }
  if (type == "StepLR") {
    return std::make_unique<optim::StepLR>(
        optimizer, optim::StepLROptions{.step_size = spec.at("step_size"), .gamma = spec.at("gamma")});
  }
  throw std::out_of_range("scheduler '" + type + "' is not known to these tests");
}

struct Outcome {
  std::vector<double> rates;
  std::vector<double> losses;
  std::vector<double> norms;
  nn::StateDict weights;
};

Outcome train(const json& spec, DType dtype) {
  const auto sizes = training_file().at("sizes").get<std::vector<std::int64_t>>();
  nn::Sequential net(nn::Linear(sizes[0], sizes[1]), nn::ReLU(), nn::Linear(sizes[1], sizes[2]));
  net.to(dtype);
  nn::StateDict initial;
  for (const auto& [name, values] : training_file().at("initial").items()) {
    initial.set(name, to_values(values).to_tensor(dtype));
  }
  net.load_state_dict(initial);

  const std::unique_ptr<optim::Optimizer> optimizer = make_optimizer(spec.at("optimizer"), net.parameters());
  const std::unique_ptr<optim::LRScheduler> scheduler = make_scheduler(spec.at("scheduler"), *optimizer);
  const json& batches = training_file().at("batches");
  const std::size_t steps = training_file().at("steps");
  Outcome run;
  for (std::size_t step = 0; step < steps; ++step) {
    const json& batch = batches[step % batches.size()];
    run.rates.push_back(optimizer->learning_rate());
    optimizer->zero_grad();
    const Tensor loss = nn::cross_entropy(net(to_values(batch.at("x")).to_tensor(dtype)),
                                          to_values(batch.at("target")).to_tensor(dtype));
    run.losses.push_back(loss.item());
    loss.backward();
    if (const json& max_norm = spec.at("clip_max_norm"); !max_norm.is_null()) {
      run.norms.push_back(optim::clip_grad_norm_(net.parameters(), max_norm).item());
    }
    optimizer->step();
    if (scheduler) {
      scheduler->step();
    }
  }
  run.weights = net.state_dict();
  return run;
}

// Rounding errors of one step enter the next. SGD passes them on; Adam divides by the size of the gradient and so
// amplifies the errors of small gradients.
double weights_tolerance(const json& spec, DType dtype) {
  if (dtype == DType::f64) {
    return kTolerance64;
  }
  return spec.at("optimizer").at("type") == "SGD" ? 1e-5 : 1e-4;
}

using Param = std::tuple<std::size_t, DType>;
class GoldenTraining : public ::testing::TestWithParam<Param> {};

TEST_P(GoldenTraining, EqualsPyTorch) {
  const auto& [index, dtype] = GetParam();
  const json& spec = training_file().at("cases").at(index);
  const json& expected = spec.at(key(dtype));
  const double allowed = weights_tolerance(spec, dtype);
  SCOPED_TRACE(fmt::format("'{}' in {}", spec.at("name").get<std::string>(), key(dtype)));

  const Outcome run = train(spec, dtype);
  EXPECT_LE(distance(run.rates, spec.at("lrs").get<std::vector<double>>()), kTolerance64) << "learning rates";
  EXPECT_LE(distance(run.losses, expected.at("losses").get<std::vector<double>>()), allowed) << "losses";
  const auto norms = expected.value("norms", std::vector<double>{});
  EXPECT_EQ(norms.empty(), spec.at("clip_max_norm").is_null());
  EXPECT_LE(distance(run.norms, norms), allowed) << "norms before clipping";
  EXPECT_EQ(run.weights.size(), expected.at("weights").size());
  for (const auto& [name, values] : expected.at("weights").items()) {
    EXPECT_TRUE(is_close(run.weights.at(name), to_values(values), allowed)) << name;
  }
}

std::string training_name(const ::testing::TestParamInfo<Param>& info) {
  const auto& [index, dtype] = info.param;
  std::string name = training_file().at("cases").at(index).at("name").get<std::string>() + "_" + key(dtype);
  for (char& c : name) {
    c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Runs, GoldenTraining,
                         ::testing::Combine(::testing::Range<std::size_t>(0, training_file().at("cases").size()),
                                            ::testing::Values(DType::f32, DType::f64)),
                         training_name);

}  // namespace
}  // namespace tandem::golden

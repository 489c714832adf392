#include <algorithm>
#include <cctype>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/autograd/parameter.h>
#include <tandem/graph/capture.h>
#include <tandem/optim/clip.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/tensor/factories.h>

#include "golden_file.h"
#include "optimizers.h"

// Compares training with PyTorch, eager and captured: with a scaled loss, and with 16-bit parameters and their f32
// masters.

namespace tandem::golden {
namespace {

using nlohmann::json;

const json& mixed_precision_file() {
  static const json read = read_family("mixed_precision");
  return read;
}

struct Parameters {
  std::vector<Parameter> list;
  explicit Parameters(DType dtype) {
    for (const json& initial : mixed_precision_file().at("initial")) {
      list.emplace_back(to_values(initial).to_tensor(dtype));
    }
  }
  std::vector<Tensor> handles() const { return {list.begin(), list.end()}; }
};

Tensor gradient(std::size_t step, std::size_t i, DType dtype) {
  const json& all = mixed_precision_file().at("gradients");
  return to_values(all[step % all.size()][i]).to_tensor(dtype);
}

std::string test_name(const json& spec) {
  std::string name = spec.at("name");
  for (char& c : name) {
    c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return name;
}

class GoldenScaler : public ::testing::TestWithParam<std::tuple<std::size_t, bool>> {};

TEST_P(GoldenScaler, EqualsPyTorch) {
  const auto& [index, captured] = GetParam();
  const json& spec = mixed_precision_file().at("scaled").at(index);
  Parameters parameters(DType::f32);
  const auto optimizer = make_optimizer(spec.at("optimizer"), parameters.handles());
  const json& given = spec.at("scaler");
  optim::GradScalerOptions options{.init_scale = given.at("init_scale"),
                                   .growth_interval = given.at("growth_interval")};
  options.growth_factor = given.value("growth_factor", options.growth_factor);
  options.backoff_factor = given.value("backoff_factor", options.backoff_factor);
  optim::GradScaler scaler(options);
  const json& max_norm = spec.at("clip_max_norm");
  const auto infinite = spec.at("infinite").get<std::vector<std::size_t>>();

  // Infinity enters through the gradient of the last element.
  const auto train = [&](const Tensor& g0, const Tensor& g1) {
    optimizer->zero_grad();
    const Tensor loss = (parameters.list[0] * g0).sum() + (parameters.list[1] * g1).sum();
    scaler.scale(loss).backward();
    if (!max_norm.is_null()) {
      scaler.unscale_(*optimizer);
      optim::clip_grad_norm_(parameters.handles(), max_norm.get<double>());
    }
    scaler.step(*optimizer);
    scaler.update();
  };
  auto step = graph::capture(train);
  const std::size_t steps = mixed_precision_file().at("steps");
  for (std::size_t i = 0; i < steps; ++i) {
    Tensor last = gradient(i, 1, DType::f32);
    if (std::find(infinite.begin(), infinite.end(), i) != infinite.end()) {
      last[-1].fill_(std::numeric_limits<double>::infinity());
    }
    captured ? step(gradient(i, 0, DType::f32), last) : train(gradient(i, 0, DType::f32), last);
    ASSERT_EQ(scaler.get_scale(), spec.at("scales").at(i).get<double>()) << "after step " << i;
    ASSERT_EQ(scaler.state_dict().at("_growth_tracker").item(), spec.at("growth_trackers").at(i)) << "after step " << i;
  }
  for (std::size_t i = 0; i < parameters.list.size(); ++i) {
    EXPECT_TRUE(is_close(parameters.list[i], to_values(spec.at("weights").at(i)), 1e-5)) << i;
  }
  EXPECT_EQ(step.stats().replayed > steps / 2, captured);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, GoldenScaler,
    ::testing::Combine(::testing::Range<std::size_t>(0, mixed_precision_file().at("scaled").size()), ::testing::Bool()),
    [](const auto& test) {
      return test_name(mixed_precision_file().at("scaled").at(std::get<0>(test.param))) +
             (std::get<1>(test.param) ? "_captured" : "_eager");
    });

class GoldenMasters : public ::testing::TestWithParam<std::tuple<std::size_t, DType>> {};

TEST_P(GoldenMasters, EqualPyTorchsF32Parameters) {
  const auto& [index, dtype] = GetParam();
  const json& spec = mixed_precision_file().at("masters").at(index);
  Parameters parameters(dtype);
  json optimizer_spec = spec.at("optimizer");
  optimizer_spec["master_weights"] = true;
  const auto optimizer = make_optimizer(optimizer_spec, parameters.handles());
  const std::size_t steps = mixed_precision_file().at("steps");
  for (std::size_t step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    for (std::size_t i = 0; i < parameters.list.size(); ++i) {
      parameters.list[i].backward(gradient(step, i, dtype));
    }
    optimizer->step();
  }
  const StateDict state = optimizer->state_dict();
  for (std::size_t i = 0; i < parameters.list.size(); ++i) {
    const Tensor& master = state.at(fmt::format("state.{}.master", i));
    EXPECT_EQ(master.dtype(), DType::f32);
    EXPECT_TRUE(is_close(master, to_values(spec.at(dtype == DType::bf16 ? "bf16" : "f16").at(i)), 1e-5)) << i;
    EXPECT_EQ(parameters.list[i].to_vector<float>(), master.to(dtype).to_vector<float>()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, GoldenMasters,
                         ::testing::Combine(::testing::Range<std::size_t>(0,
                                                                          mixed_precision_file().at("masters").size()),
                                            ::testing::Values(DType::bf16, DType::f16)),
                         [](const auto& test) {
                           return test_name(mixed_precision_file().at("masters").at(std::get<0>(test.param))) +
                                  (std::get<1>(test.param) == DType::bf16 ? "_bf16" : "_f16");
                         });

}  // namespace
}  // namespace tandem::golden

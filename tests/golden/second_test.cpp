#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/autograd/grad.h>
#include <tandem/autograd/ops.h>
#include <tandem/tensor/factories.h>

#include "ops.h"

// Compares second derivatives with PyTorch's; second.py says of what.

namespace tandem::golden {
namespace {

constexpr double kToleranceOfSecond = 1e-10;

Tensor weights(const Shape& sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    count *= size;
  }
  std::vector<double> values;
  for (std::int64_t k = 0; k < count; ++k) {
    values.push_back(static_cast<double>(k * 7 % 11 - 5) / 4);
  }
  return from_data(values, {count}).reshape(sizes);
}

// The gradients by the inputs that have one, and by grad_output last; undefined where there is none.
std::vector<Tensor> second_derivatives(const Case& c) {
  std::vector<Tensor> inputs;
  std::vector<Tensor> asked;
  for (const Input& input : c.inputs) {
    Tensor leaf = input.values.to_tensor(DType::f64);
    if (input.requires_grad) {
      leaf.requires_grad_();
      asked.push_back(leaf);
    }
    inputs.push_back(input.permute ? leaf.permute(*input.permute) : leaf);
  }
  const Tensor seed = c.grad_output->to_tensor(DType::f64).requires_grad_();
  const Tensor output = run_op(c, inputs);
  const std::vector<Tensor> first = autograd::grad(
      std::span(&output, 1), asked, {.grad_outputs = {seed}, .create_graph = true, .allow_unused = true});
  Tensor total = zeros({}, {.dtype = DType::f64});
  for (const Tensor& gradient : first) {
    total = gradient.defined() ? total + (gradient * weights(gradient.shape())).sum() : total;
  }
  asked.push_back(seed);
  return autograd::grad(std::span(&total, 1), asked, {.allow_unused = true});
}

TEST(GoldenSecondDerivatives, EqualPyTorch) {
  std::map<std::string, std::map<std::string, Case>> cases;
  const nlohmann::json file = read_family("second");
  EXPECT_GT(file.at("cases").size(), 400U);
  for (const nlohmann::json& entry : file.at("cases")) {
    const std::string family = entry.at("family");
    if (!cases.contains(family)) {
      for (Case& c : read_cases(family)) {
        cases[family].emplace(c.name, std::move(c));
      }
    }
    const Case& c = cases.at(family).at(entry.at("name"));
    const std::string which = fmt::format("{}: '{}'", family, c.name);
    try {
      std::vector<nlohmann::json> expected;
      for (std::size_t i = 0; i < c.inputs.size(); ++i) {
        if (c.inputs[i].requires_grad) {
          expected.push_back(entry.at("grads").at(i));
        }
      }
      expected.push_back(entry.at("grad_output"));
      const std::vector<Tensor> got = second_derivatives(c);
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (!expected[i].is_null()) {
          EXPECT_TRUE(is_close(got[i], to_values(expected[i]), kToleranceOfSecond)) << which << ", gradient " << i;
        } else if (got[i].defined()) {
          EXPECT_LT(got[i].abs().sum().item(), kToleranceOfSecond) << which << ", gradient " << i << " should be 0";
        }
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << which << " threw: " << error.what();
    }
  }
}

}  // namespace
}  // namespace tandem::golden

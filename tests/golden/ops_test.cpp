#include "ops.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tensor/factories.h>

// Compares values and gradients of every op with PyTorch's.

namespace tandem::golden {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const std::set<std::string> kFamilies{"activation", "index",  "linear",  "loss",    "matmul",     "norm",
                                      "pointwise",  "reduce", "softmax", "spatial", "statistics", "view"};

class GoldenOps : public ::testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(GoldenOps, EqualPyTorch) {
  const auto& [family, dtype] = GetParam();
  const std::vector<Case> cases = read_cases(family);
  EXPECT_GE(cases.size(), 30u);
  for (const Case& c : cases) {
    for (const std::string& problem : problems_of(c, dtype)) {
      ADD_FAILURE() << family << " in " << key(dtype) << ", " << problem;
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<GoldenOps::ParamType>& info) {
  return std::get<0>(info.param) + "_" + key(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenOps,
                         ::testing::Combine(::testing::ValuesIn(kFamilies), ::testing::Values(DType::f32, DType::f64)),
                         test_name);

TEST(GoldenFiles, AreAllRead) {
  std::set<std::string> known = kFamilies;
  known.insert({"matrix", "training", "mixed_precision", "schedules", "init", "npy",
                "second"});  // read by the tests with these names
  std::set<std::string> there;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (entry.path().extension() == ".json") {
      there.insert(entry.path().stem().string());
    }
  }
  EXPECT_EQ(there, known);
}

// ---- tests of the comparison itself ----

const Values kExpected{.shape = {2}, .data = {1.0, -4.0}};

TEST(GoldenComparison, IsRelativeToTheLargestValue) {
  EXPECT_TRUE(is_close(tensor({1.0, -4.0}), kExpected, 0));
  EXPECT_TRUE(is_close(tensor({1.25, -4.0}), kExpected, 0.0625));
  EXPECT_FALSE(is_close(tensor({1.25, -4.0}), kExpected, 0.06));
  EXPECT_TRUE(is_close(tensor({0.0, 0.25}), {.shape = {2}, .data = {0, 0}}, 0.25)) << "absolute where all is zero";
  EXPECT_FALSE(is_close(tensor({0.0, 0.5}), {.shape = {2}, .data = {0, 0}}, 0.25));
}

TEST(GoldenComparison, NoticesShapesKindsAndValuesThatAreNoNumbers) {
  EXPECT_FALSE(is_close(Tensor(), kExpected, 1));
  EXPECT_FALSE(is_close(tensor({1.0, -4.0}).reshape({1, 2}), kExpected, 1));
  EXPECT_FALSE(is_close(tensor({1, -4}), kExpected, 1));
  EXPECT_FALSE(is_close(tensor({1, 3}), {.shape = {2}, .data = {1, 2}, .integer = true}, 1));
  EXPECT_FALSE(is_close(tensor({std::nan(""), -4.0}), kExpected, 1));
  EXPECT_FALSE(is_close(tensor({1.0, std::nan("")}), kExpected, 1));
  EXPECT_FALSE(is_close(tensor({std::numeric_limits<double>::infinity(), -4.0}), kExpected, 1));
  EXPECT_TRUE(is_close(empty({0, 3}), {.shape = {0, 3}, .data = {}}, 0));
}

TEST(GoldenComparison, WrongOutputAndGradientAreNamed) {
  Case c = to_case(nlohmann::json::parse(R"({
    "name": "x times x", "op": "mul", "attrs": {},
    "inputs": [{"shape": [2], "data": [1, -4], "dtype": "float", "requires_grad": true},
               {"shape": [2], "data": [1, -4], "dtype": "float", "requires_grad": false}],
    "grad_output": {"shape": [2], "data": [1, -4]},
    "f64": {"output": {"shape": [2], "data": [1, 16]}, "grads": [{"shape": [2], "data": [1, 16]}, null]}
  })"));
  EXPECT_THAT(problems_of(c, DType::f32), IsEmpty());
  EXPECT_THAT(problems_of(c, DType::f64), IsEmpty());
  c.f64.output.data[0] = 1.5;
  c.f64.grads = {std::nullopt, kExpected};
  EXPECT_THAT(problems_of(c, DType::f64),
              ElementsAre(StartsWith("'x times x', output: max|a-b| / max|b| is 0.0312, allowed is 1e-12"),
                          "'x times x', gradient of input 0: there should be none",
                          StartsWith("'x times x', gradient of input 1: nothing came, expected shape [2]")));
  c.op = "frobnicate";
  EXPECT_THAT(problems_of(c, DType::f64), ElementsAre(HasSubstr("op 'frobnicate' is not known to these tests")));
}

}  // namespace
}  // namespace tandem::golden

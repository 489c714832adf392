#include "matrix.h"

#include <string>

#include <gtest/gtest.h>

#include "golden_file.h"

// Compares every op in every dtype and layout with PyTorch: values, dtypes of results, gradients, and rejected inputs.

namespace tandem::golden {
namespace {

class OpMatrix : public ::testing::TestWithParam<std::string> {};

TEST_P(OpMatrix, EqualsPyTorch) {
  const std::string& subject = GetParam();
  const bool pair = subject == "pair";
  const DType dtype = pair ? DType::f32 : dtype_named(subject);
  const std::string wanted = !pair && is_floating_point(dtype) ? "*" : subject;
  int cases = 0;
  const nlohmann::json file = read_family("matrix");
  for (const nlohmann::json& entry : file.at("cases")) {
    if (subject_of(entry) != wanted) {
      continue;
    }
    ++cases;
    for (const std::string& problem : matrix_problems(entry, dtype)) {
      ADD_FAILURE() << subject << ": " << problem;
    }
  }
  EXPECT_GE(cases, 300);
}

INSTANTIATE_TEST_SUITE_P(Subjects, OpMatrix,
                         ::testing::Values("f64", "f32", "bf16", "f16", "i64", "i32", "u8", "bool", "pair"),
                         [](const auto& subject) { return subject.param; });

}  // namespace
}  // namespace tandem::golden

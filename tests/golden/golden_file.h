#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/tensor/tensor.h>

// Reads the golden vectors in this folder; the docstring of generate.py describes their format.

namespace tandem::golden {

/// The tolerances of f64 and f32: max|a-b| / max|b| per tensor.
constexpr double kTolerance64 = 1e-12;
constexpr double kTolerance32 = 1e-6;

inline double tolerance(DType dtype) { return dtype == DType::f64 ? kTolerance64 : kTolerance32; }
/// The key of a case's results: "f64" or "f32".
inline const char* key(DType dtype) { return dtype == DType::f64 ? "f64" : "f32"; }

/// A tensor as stored: PyTorch's own values to the last digit.
struct Values {
  Shape shape;
  std::vector<double> data;
  bool integer = false;

  Tensor to_tensor(DType floating) const;
};

struct Input {
  Values values;
  bool requires_grad = false;
  std::optional<Shape> permute;
};

struct Result {
  Values output;
  std::vector<std::optional<Values>> grads;
};

struct Case {
  std::string name;
  std::string op;
  nlohmann::json attrs;
  std::vector<Input> inputs;
  std::optional<Values> grad_output;
  std::optional<Values> indices;
  Result f64;
  Result f32;

  const Result& result(DType dtype) const { return dtype == DType::f64 ? f64 : f32; }
};

/// The dtype with this name. Throws std::out_of_range for an unknown name.
DType dtype_named(const std::string& text);
Shape to_shape(const nlohmann::json& sizes);
Values to_values(const nlohmann::json& tensor);
Case to_case(const nlohmann::json& entry);

/// The folder of the files: tests/golden, or TANDEM_GOLDEN.
std::string folder();
/// The content of <family>.json. Throws if the file is missing.
nlohmann::json read_family(const std::string& family);
/// The cases of a family.
std::vector<Case> read_cases(const std::string& family);

/// Requires equal shapes, equal kinds of elements and max|a-b| <= tolerance * max|b|; if all of b is zero, max|a-b| <=
/// tolerance. Integers must be equal. NaN is never close.
::testing::AssertionResult is_close(const Tensor& got, const Values& expected, double tolerance);
/// The distance in this rule for plain numbers: max|a-b| / max|b|, infinite if a contains NaN.
double distance(const std::vector<double>& got, const std::vector<double>& expected);

}  // namespace tandem::golden

#include "golden_file.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

#include <tandem/tensor/factories.h>

namespace tandem::golden {

using nlohmann::json;

Tensor Values::to_tensor(DType floating) const { return from_data(data, shape).to(integer ? DType::i64 : floating); }

DType dtype_named(const std::string& text) {
  for (const DType dtype :
       {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean}) {
    if (name(dtype) == text) {
      return dtype;
    }
  }
  throw std::out_of_range("there is no dtype '" + text + "'");
}

Shape to_shape(const json& sizes) { return Shape(sizes.get<std::vector<std::int64_t>>()); }

Values to_values(const json& tensor) {
  return {.shape = to_shape(tensor.at("shape")),
          .data = tensor.at("data").get<std::vector<double>>(),
          .integer = tensor.value("dtype", "float") == "i64"};
}

std::string folder() {
  const char* const elsewhere = std::getenv("TANDEM_GOLDEN");
  return elsewhere != nullptr ? elsewhere : TANDEM_SOURCE_DIR "/tests/golden";
}

json read_family(const std::string& family) {
  const std::string path = folder() + "/" + family + ".json";
  std::ifstream file(path);
  if (!file) {
    throw std::runtime_error("cannot open " + path);
  }
  return json::parse(file);
}

namespace {

std::optional<Values> optional_values(const json& tensor) {
  return tensor.is_null() ? std::nullopt : std::optional(to_values(tensor));
}

Result to_result(const json& result) {
  Result read{.output = to_values(result.at("output")), .grads = {}};
  for (const json& grad : result.at("grads")) {
    read.grads.push_back(optional_values(grad));
  }
  return read;
}

}  // namespace

Case to_case(const json& entry) {
  Case read{.name = entry.at("name"),
            .op = entry.at("op"),
            .attrs = entry.at("attrs"),
            .inputs = {},
            .grad_output = optional_values(entry.at("grad_output")),
            .indices = optional_values(entry.value("indices", json())),
            .f64 = to_result(entry.at("f64")),
            .f32 = to_result(entry.contains("f32") ? entry.at("f32") : entry.at("f64"))};
  for (const json& input : entry.at("inputs")) {
    read.inputs.push_back(
        {.values = to_values(input),
         .requires_grad = input.at("requires_grad"),
         .permute = input.contains("permute") ? std::optional(to_shape(input.at("permute"))) : std::nullopt});
  }
  return read;
}

std::vector<Case> read_cases(const std::string& family) {
  std::vector<Case> cases;
  const json file = read_family(family);
  for (const json& entry : file.at("cases")) {
    cases.push_back(to_case(entry));
  }
  return cases;
}

double distance(const std::vector<double>& got, const std::vector<double>& expected) {
  if (got.size() != expected.size()) {
    return std::numeric_limits<double>::infinity();
  }
  double difference = 0;
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double gap = std::abs(got[i] - expected[i]);
    difference = std::isnan(gap) ? std::numeric_limits<double>::infinity() : std::max(difference, gap);
    largest = std::max(largest, std::abs(expected[i]));
  }
  return largest > 0 ? difference / largest : difference;
}

::testing::AssertionResult is_close(const Tensor& got, const Values& expected, double tolerance) {
  if (!got.defined()) {
    return ::testing::AssertionFailure() << "nothing came, expected shape " << to_string(expected.shape);
  }
  if (got.shape() != expected.shape) {
    return ::testing::AssertionFailure() << "shape " << to_string(got.shape()) << ", expected "
                                         << to_string(expected.shape);
  }
  const bool integer = got.dtype() == DType::i64;
  if (integer != expected.integer) {
    return ::testing::AssertionFailure() << "dtype " << name(got.dtype()) << ", expected "
                                         << (expected.integer ? "i64" : "a floating point one");
  }
  const double far = distance(got.to_vector<double>(), expected.data);
  if (far <= (integer ? 0 : tolerance)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << fmt::format(
             "max|a-b| / max|b| is {:.3g}, allowed is {:g}\n     got {}\nexpected {}", far, tolerance, to_string(got),
             to_string(expected.to_tensor(DType::f64)));
}

}  // namespace tandem::golden

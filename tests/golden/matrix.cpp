#include "matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/tensor/factories.h>

#include "golden_file.h"
#include "ops.h"

namespace tandem::golden {

namespace {

using nlohmann::json;

constexpr std::uint64_t kBackward = 98;  // salts of the hashes
constexpr std::uint64_t kWeights = 99;

// ---- inputs by formula, as in matrix.py ----

std::uint32_t hashed(std::size_t i, std::uint64_t salt) {
  auto h = static_cast<std::uint32_t>(i + (salt + 1) * 7919);
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return (h ^ (h >> 16)) & 255;
}

double weight(std::size_t i) { return (static_cast<double>(hashed(i, kWeights)) - 128) / 128; }

Tensor special_values(DType dtype) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (dtype) {
    case DType::boolean: return tensor({0, 1}, {.dtype = dtype});
    case DType::u8: return tensor({0, 1, 2, 7, 127, 128, 254, 255}, {.dtype = dtype});
    case DType::i32:
    case DType::i64: {
      const bool wide = dtype == DType::i64;
      const std::int64_t lowest = wide ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<int>::min();
      const std::int64_t highest = wide ? std::numeric_limits<std::int64_t>::max() : std::numeric_limits<int>::max();
      return tensor<std::int64_t>({lowest, highest, -1, 0, 1, 2, -7, 63}, {.dtype = dtype});
    }
    default: return tensor({std::nan(""), kInfinity, -kInfinity, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5}, {.dtype = dtype});
  }
}

// The value that a hash of 0 ... 255 stands for.
double value_of(const std::string& kind, DType dtype, std::int64_t limit, std::int64_t h) {
  if (kind == "index") {
    return static_cast<double>(h % limit);
  }
  if (kind == "mask" || dtype == DType::boolean) {
    return static_cast<double>(h % 2);
  }
  const std::int64_t sign = h < 128 ? -1 : 1;
  const bool unsigned_type = dtype == DType::u8;
  const bool whole = !is_floating_point(dtype);
  const double unit = whole ? 1 : 32;
  if (kind == "normal") {
    return static_cast<double>(unsigned_type ? h : h - 128) / unit;
  }
  if (kind == "positive") {
    return static_cast<double>(whole ? h % 16 + 1 : h % 128 + 8) / unit;
  }
  if (kind == "small") {
    return whole ? static_cast<double>(h % 5) : static_cast<double>(h % 17 - 8) / 4;
  }
  if (kind == "nonzero") {
    return static_cast<double>((unsigned_type ? 1 : sign) * (h % 64 + (whole ? 1 : 16))) / unit;
  }
  throw std::out_of_range("there is no kind of value '" + kind + "'");
}

Tensor filled(const std::string& kind, const Shape& sizes, DType dtype, std::uint64_t salt) {
  if (kind.starts_with("special")) {  // "special numbers" are the special values without NaN, which comes first
    const Tensor all = special_values(dtype);
    return (all.numel() > sizes.numel() && sizes.ndim() == 1 ? all.slice(0, 1, all.numel()) : all).reshape(sizes);
  }
  std::istringstream words(kind);
  std::string name;
  std::int64_t limit = 0;
  words >> name >> limit;
  std::array<double, 256> of_hash{};
  for (std::size_t h = 0; h < of_hash.size(); ++h) {
    of_hash[h] = value_of(name, dtype, limit, static_cast<std::int64_t>(h));
  }
  std::vector<double> values(static_cast<std::size_t>(sizes.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = of_hash[hashed(i, salt)];
  }
  return from_data(values, sizes).to(dtype);
}

struct MatrixInput {
  Tensor leaf;
  Tensor given;  // the tensor passed to the op
};

MatrixInput input_of(const json& input, DType floating, std::uint64_t salt) {
  const std::string layout = input.at(2);
  const bool varies = input.at(3) == "*";
  const DType dtype = varies ? floating : dtype_named(input.at(3));
  const Shape sizes = to_shape(input.at(1));
  Shape of_leaf = sizes;
  if (layout == "strided") {
    for (int dim = 0; dim < sizes.ndim(); ++dim) {
      of_leaf[dim] = sizes[sizes.ndim() - 1 - dim] + 2;
    }
    of_leaf[0] = 2 * sizes.back() + 1;
  } else if (layout == "expanded") {
    of_leaf[0] = 1;
  }
  const Tensor leaf = filled(input.at(0), of_leaf, dtype, salt).requires_grad_(varies);
  Tensor given = leaf;
  if (layout == "strided") {
    Shape order;
    for (int dim = 0; dim < sizes.ndim(); ++dim) {
      given = dim == 0 ? given.slice(0, 1, of_leaf[0], 2) : given.slice(dim, 2, of_leaf[dim]);
      order.push_back(sizes.ndim() - 1 - dim);
    }
    given = given.permute(order);
  } else if (layout == "expanded") {
    given = given.expand(sizes);
  }
  return {leaf, given};
}

// ---- comparison ----

double to_number(const json& value) {
  return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
}

std::vector<double> to_numbers(const json& values) {
  std::vector<double> numbers;
  std::transform(values.begin(), values.end(), std::back_inserter(numbers), to_number);
  return numbers;
}

// The numbers after rounding to this dtype.
std::vector<double> rounded(const std::vector<double>& values, DType dtype) {
  return from_data(values).to(dtype).to_vector<double>();
}

// The distance between neighboring numbers at `value` in a 16-bit type.
double last_place(double value, DType dtype) {
  const int exponent = value > 0 ? std::ilogb(value) : 0;
  return dtype == DType::bf16 ? std::ldexp(1, exponent - 7) : std::ldexp(1, std::max(exponent, -14) - 10);
}

double magnitude(double largest, double value) {
  return std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
}

// The allowed deviation of a floating-point tensor from expected values whose largest is `scale`.
double allowance(double scale, DType dtype) {
  if (is_reduced_floating_point(dtype)) {
    return last_place(scale, dtype);
  }
  return tolerance(dtype) * (scale > 0 ? scale : 1);
}

std::string wrong_floats(const Tensor& got, const json& expected, bool result) {
  const DType dtype = got.dtype();
  const std::vector<double> all = got.to_vector<double>();
  const bool sampled = expected.contains("samples");
  const std::vector<double> exact = to_numbers(expected.at(sampled ? "samples" : "data"));
  const std::vector<double> wanted = rounded(exact, dtype);
  const double scale = sampled ? rounded({to_number(expected.at("max"))}, dtype)[0]
                               : std::accumulate(wanted.begin(), wanted.end(), 0.0, magnitude);
  // A 16-bit gradient is computed from rounded results and rounded after each op, as in PyTorch.
  const double allowed = allowance(scale, dtype) * (result || !is_reduced_floating_point(dtype) ? 1 : 4);
  std::size_t unequal = 0;
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const std::size_t at = sampled ? k * (all.size() - 1) / 7 : k;
    const bool same = all[at] == wanted[k] || (std::isnan(all[at]) && std::isnan(wanted[k]));
    unequal += same ? 0 : 1;
    if (!same && !(std::abs(all[at] - wanted[k]) <= allowed)) {
      return fmt::format("element {} is {}, expected {}; {} away is allowed", at, all[at], wanted[k], allowed);
    }
  }
  // Near the middle between two 16-bit numbers, f32 and f64 results round differently about once in thousands of
  // elements. Rounding of intermediate results causes many more differences.
  if (result && is_reduced_floating_point(dtype) && unequal > 1 + wanted.size() / 20) {
    return fmt::format("{} of {} elements are not the correctly rounded ones", unequal, wanted.size());
  }
  if (sampled && std::isfinite(scale)) {
    double sum = 0;
    double dot = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      sum += std::abs(all[i]);
      dot += all[i] * weight(i);
    }
    const double total = to_number(expected.at("sum"));
    const double share = is_reduced_floating_point(dtype) ? last_place(1, dtype) : tolerance(dtype);
    for (const auto& [name, value] : {std::pair("sum", sum), {"dot", dot}}) {
      if (!(std::abs(value - to_number(expected.at(name))) <= share * total)) {
        return fmt::format("{} is {}, expected {}", name, value, to_number(expected.at(name)));
      }
    }
  }
  return {};
}

std::string wrong_integers(const Tensor& got, const json& expected) {
  const std::vector<std::int64_t> all = got.to_vector<std::int64_t>();
  const bool sampled = expected.contains("samples");
  const auto wanted = expected.at(sampled ? "samples" : "data").get<std::vector<std::int64_t>>();
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const std::size_t at = sampled ? k * (all.size() - 1) / 7 : k;
    if (all[at] != wanted[k]) {
      return fmt::format("element {} is {}, expected {}", at, all[at], wanted[k]);
    }
  }
  if (sampled) {
    double dot = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      dot += static_cast<double>(all[i]) * weight(i);
    }
    if (!(std::abs(dot - to_number(expected.at("dot"))) <= 1e-12 * to_number(expected.at("sum")))) {
      return fmt::format("dot is {}, expected {}", dot, to_number(expected.at("dot")));
    }
  }
  return {};
}

std::string wrong(const Tensor& got, const json& expected, DType dtype, bool result) {
  if (!got.defined()) {
    return "nothing came";
  }
  if (got.dtype() != dtype) {
    return fmt::format("dtype {}, expected {}", name(got.dtype()), name(dtype));
  }
  if (got.shape() != to_shape(expected.at("shape"))) {
    return fmt::format("shape {}, expected {}", to_string(got.shape()), to_string(to_shape(expected.at("shape"))));
  }
  return is_floating_point(dtype) ? wrong_floats(got, expected, result) : wrong_integers(got, expected);
}

}  // namespace

std::string subject_of(const json& entry) {
  if (entry.at("layout") == "pair") {
    return "pair";
  }
  for (const json& input : entry.at("inputs")) {
    const std::string kind = input.at(0);
    if (kind != "mask" && !kind.starts_with("index")) {
      return input.at(3);
    }
  }
  throw std::out_of_range("a case without values");
}

std::vector<std::string> matrix_problems(const json& entry, DType floating) {
  std::vector<std::string> problems;
  const std::string title = fmt::format("{} {} {} of {}", entry.at("op").get<std::string>(), entry.at("attrs").dump(),
                                        entry.at("layout").get<std::string>(), entry.at("inputs").dump());
  const auto note = [&](const std::string& what, const std::string& problem) {
    if (!problem.empty()) {
      problems.push_back(fmt::format("{}, {}: {}", title, what, problem));
    }
  };
  std::vector<Tensor> leaves;
  std::vector<Tensor> given;
  for (const json& input : entry.at("inputs")) {
    MatrixInput made = input_of(input, floating, leaves.size());
    leaves.push_back(made.leaf);
    given.push_back(made.given);
  }
  Case c{.name = title,
         .op = entry.at("op"),
         .attrs = entry.at("attrs"),
         .inputs = {},
         .grad_output = {},
         .indices = {},
         .f64 = {},
         .f32 = {}};
  try {
    const Tensor output = run_op(c, given);
    if (entry.contains("error")) {
      note("dtype", fmt::format("a DTypeError was expected, got {}", to_string(output)));
      return problems;
    }
    const DType dtype = entry.at("out") == "*" ? floating : dtype_named(entry.at("out"));
    note("output", wrong(output, entry.at("output"), dtype, true));
    if (output.requires_grad() != entry.contains("grads")) {
      note("output", fmt::format("requires_grad is {}", output.requires_grad()));
    } else if (output.requires_grad()) {
      output.backward(filled("nonzero", output.shape(), output.dtype(), kBackward));
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        if (!entry.at("grads").at(i).is_null()) {
          note(fmt::format("gradient of input {}", i),
               wrong(leaves[i].grad(), entry.at("grads").at(i), leaves[i].dtype(), false));
        }
      }
    }
  } catch (const DTypeError& e) {
    if (!entry.contains("error")) {
      note("threw", e.what());
    }
  } catch (const std::exception& e) {
    note("threw", e.what());
  }
  return problems;
}

}  // namespace tandem::golden

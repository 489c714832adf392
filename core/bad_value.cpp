#include <tandem/core/bad_value.h>

#include <fmt/format.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::core {

namespace {

// "row 3", or "place [3, 0, 2]" for targets with several dimensions.
std::string place_of(const BadValue& bad) {
  if (bad.ndim <= 1) {
    return fmt::format("row {}", bad.position);
  }
  Shape place = Shape::filled(bad.ndim, 0);
  std::int64_t rest = bad.position;
  for (int dim = bad.ndim - 1; dim >= 0; --dim) {
    place[dim] = rest % bad.sizes[dim];
    rest /= bad.sizes[dim];
  }
  return fmt::format("place {}", place);
}

// Formats the number in its element type: values of every type except f64 are exact in f32.
std::string number_of(const BadValue& bad) {
  const auto single = static_cast<float>(bad.number);
  return static_cast<double>(single) == bad.number ? fmt::to_string(single) : fmt::to_string(printable(bad.number));
}

}  // namespace

std::string describe(const BadValue& bad) {
  switch (bad.kind) {
    case BadValue::Kind::index:
      return fmt::format("index {} at position {} is outside [0, {})", bad.value, bad.position, bad.end);
    case BadValue::Kind::target:
      return fmt::format("target {} in {} is not a class index: expected 0 to {}, or {} (ignore_index)", bad.value,
                         place_of(bad), bad.end - 1, bad.ignored);
    case BadValue::Kind::probability:
      return fmt::format(
          "element {} of the input is {}, expected a probability between 0 and 1; for logits use "
          "binary_cross_entropy_with_logits",
          bad.position, number_of(bad));
  }
  return "";
}

const char* code_of(const BadValue& bad) noexcept {
  switch (bad.kind) {
    case BadValue::Kind::index: return " [TDM-E306]";
    case BadValue::Kind::target: return " [TDM-E303]";
    case BadValue::Kind::probability: return " [TDM-E315]";
  }
  return "";
}

}  // namespace tandem::inline v0::core

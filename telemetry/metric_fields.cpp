#include <tandem/telemetry/metric_fields.h>

#include <algorithm>
#include <cstdint>
#include <variant>

namespace tandem::inline v0::telemetry {

std::optional<double> number_in(const FieldValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    return static_cast<double>(*whole);
  }
  const auto* number = std::get_if<double>(&value);
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

std::string axis_of(const Fields& fields) {
  for (const char* name : {"step", "epoch"}) {
    if (std::ranges::any_of(fields, [&](const Field& field) {
          return field.name == name && std::holds_alternative<std::int64_t>(field.value);
        })) {
      return name;
    }
  }
  return {};
}

}  // namespace tandem::inline v0::telemetry

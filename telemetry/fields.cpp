#include <tandem/telemetry/fields.h>

#include <nlohmann/json.hpp>

namespace tandem::inline v0::telemetry {

std::string to_json(const Fields& fields, int indent) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const Field& field : fields) {
    std::visit([&](const auto& value) { object[field.name] = value; }, field.value);
  }
  // Like NaN, bad UTF-8 in a metric must not end a run: dump() writes null for the one, replace covers the other.
  return object.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tandem::inline v0::telemetry

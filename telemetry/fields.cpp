#include <tandem/telemetry/fields.h>

#include <nlohmann/json.hpp>

namespace tandem::inline v0::telemetry {

std::string to_json(const Fields& fields, int indent) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const Field& field : fields) {
    std::visit([&](const auto& value) { object[field.name] = value; }, field.value);
  }
  // Neither NaN nor bad UTF-8 in a metric may end a run: dump() writes NaN as null, and `replace` handles bad UTF-8.
  return object.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tandem::inline v0::telemetry

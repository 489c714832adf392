#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::telemetry {

/// What a field of a JSON object can hold. JSON has no NaN and no infinity: such a double is written
/// as null. Text that is not UTF-8 is written with U+FFFD in place of the bad bytes.
using FieldValue = std::variant<bool, std::int64_t, double, std::string, std::vector<double>, std::vector<std::string>>;

/// One name and value of a JSON object.
struct Field {
  std::string name;  // its key
  FieldValue value;  // its value
};

/// Written in this order: {{"epoch", 3}, {"loss", 0.143}}. Of two fields of one name the later value counts.
using Fields = std::vector<Field>;

/// The object as JSON text: on one line, or with each field on a line of its own, `indent` spaces in.
TANDEM_API std::string to_json(const Fields& fields, int indent = -1);

}  // namespace tandem::inline v0::telemetry

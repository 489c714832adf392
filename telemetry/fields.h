#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::telemetry {

/// The value of a field in a JSON object. JSON has no NaN and no infinity: such a double is written as null. In text
/// that is not UTF-8, U+FFFD replaces the bad bytes.
using FieldValue = std::variant<bool, std::int64_t, double, std::string, std::vector<double>, std::vector<std::string>>;

/// One name and value in a JSON object.
struct Field {
  std::string name;  // key in the object
  FieldValue value;  // value under that key
};

/// Fields in the order of writing: {{"epoch", 3}, {"loss", 0.143}}. If a name repeats, the later value counts.
using Fields = std::vector<Field>;

/// The object as JSON text: on one line, or with one field per line, indented by `indent` spaces.
TANDEM_API std::string to_json(const Fields& fields, int indent = -1);

}  // namespace tandem::inline v0::telemetry

#pragma once

#include <string>
#include <utility>
#include <vector>

namespace example {

/// One JSON object: its fields in order. Numbers and literals are kept as in the JSON text, strings without quotes.
struct Record {
  std::vector<std::pair<std::string, std::string>> fields;

  /// Throws std::out_of_range for an unknown field.
  const std::string& at(const std::string& key) const;
  /// The value as a number; throws std::invalid_argument if it is not one.
  double number(const std::string& key) const;
  std::vector<std::string> keys() const;

  bool operator==(const Record&) const = default;
};

/// Throws nlohmann's parse_error unless `json` is exactly one JSON object.
Record parse_record(const std::string& json);

}  // namespace example

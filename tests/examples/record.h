#pragma once

#include <string>
#include <utility>
#include <vector>

namespace example {

/// One JSON object: its fields in order, numbers and the like as JSON writes them, text without quotes.
struct Record {
  std::vector<std::pair<std::string, std::string>> fields;

  /// Throws std::out_of_range when there is no such field.
  const std::string& at(const std::string& key) const;
  /// The same as a number; throws std::invalid_argument when it is none.
  double number(const std::string& key) const;
  std::vector<std::string> keys() const;

  bool operator==(const Record&) const = default;
};

/// Throws nlohmann's parse_error for anything but one JSON object.
Record parse_record(const std::string& json);

}  // namespace example

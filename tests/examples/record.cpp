#include "record.h"

#include <algorithm>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace example {

const std::string& Record::at(const std::string& key) const {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.first == key; });
  if (found == fields.end()) {
    throw std::out_of_range("there is no field '" + key + "'");
  }
  return found->second;
}

double Record::number(const std::string& key) const { return std::stod(at(key)); }

std::vector<std::string> Record::keys() const {
  std::vector<std::string> all;
  for (const auto& [key, value] : fields) {
    all.push_back(key);
  }
  return all;
}

Record parse_record(const std::string& json) {
  Record record;
  const auto object = nlohmann::ordered_json::parse(json);
  for (const auto& [key, value] : object.items()) {
    record.fields.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return record;
}

}  // namespace example

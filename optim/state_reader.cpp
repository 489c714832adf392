#include <tandem/optim/state_reader.h>

#include <cmath>

#include <fmt/ranges.h>

#include <tandem/core/check.h>
#include <tandem/core/error.h>

namespace tandem::inline v0::optim {

bool StateReader::has(const std::string& name) {
  const bool there = state_.find(name) != nullptr;
  if (there) {
    asked_.insert(name);
  }
  return there;
}

const Tensor* StateReader::find(const std::string& name) {
  asked_.insert(name);
  const Tensor* value = state_.find(name);
  if (value == nullptr) {
    missing_.push_back(name);
  } else if (!value->defined()) {
    note(fmt::format("value of '{}': the state has an undefined tensor", name));
    return nullptr;
  }
  return value;
}

const Tensor* StateReader::find(const std::string& name, const Shape& shape) {
  const Tensor* value = find(name);
  if (value != nullptr && !(value->shape() == shape)) {
    note(fmt::format("shape of '{}': {} has {}, the state {}", name, reader_, shape, value->shape()));
    return nullptr;
  }
  return value;
}

Tensor StateReader::tensor(const std::string& name, const Shape& shape) {
  const Tensor* value = find(name, shape);
  if (value != nullptr && !is_floating_point(value->dtype())) {
    note(fmt::format("dtype of '{}': {} needs floating point, the state has {}", name, reader_, value->dtype()));
    return {};
  }
  return value != nullptr ? *value : Tensor();
}

double StateReader::number(const std::string& name, double otherwise) {
  const Tensor* value = find(name, {});
  return value != nullptr ? value->item() : otherwise;
}

std::int64_t StateReader::integer(const std::string& name, std::int64_t least) {
  const Tensor* value = find(name, {});
  if (value == nullptr) {
    return least;
  }
  constexpr double kExact = 9007199254740992;  // 2^53: a double holds all integers up to it
  const double number = value->item();
  if (!(number >= static_cast<double>(least) && number <= kExact && number == std::floor(number))) {
    note(fmt::format("value of '{}': {} needs an integer >= {}, the state has {}", name, reader_, least, number));
    return least;
  }
  return static_cast<std::int64_t>(number);
}

std::vector<double> StateReader::numbers(const std::string& name, std::size_t count) {
  const Tensor* value = find(name, {static_cast<std::int64_t>(count)});
  return value != nullptr ? value->to_vector<double>() : std::vector<double>{};
}

void StateReader::finish() {
  for (const std::string& name : missing_) {
    note(fmt::format("missing: '{}'", name));
  }
  for (const auto& [name, value] : state_) {
    if (!asked_.contains(name)) {
      const std::string near = core::nearest(name, missing_);
      note(fmt::format("unexpected: '{}'{}", name, near.empty() ? "" : fmt::format(" (is it '{}'?)", near)));
    }
  }
  check<ConfigError>(problems_.empty(),
                     "load_state_dict: the state does not fit {}; nothing was loaded\n  {} [TDM-E314]", reader_,
                     fmt::join(problems_, "\n  "));
}

}  // namespace tandem::inline v0::optim

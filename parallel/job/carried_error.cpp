#include <tandem/parallel/job/carried_error.h>

#include <array>
#include <stdexcept>
#include <typeinfo>

#include <tandem/core/error.h>

namespace tandem::inline v0::parallel {

namespace {

struct Type {
  std::string_view name;
  const std::type_info* info;
  void (*raise)(const std::string& text);
};

template <class E>
constexpr Type type(std::string_view name) {
  return {name, &typeid(E), [](const std::string& text) { throw E(text); }};
}

const std::array kTypes = {
    type<Error>("Error"),
    type<ShapeError>("ShapeError"),
    type<DTypeError>("DTypeError"),
    type<DeviceError>("DeviceError"),
    type<AutogradError>("AutogradError"),
    type<OutOfMemory>("OutOfMemory"),
    type<IoError>("IoError"),
    type<ConfigError>("ConfigError"),
    type<CaptureError>("CaptureError"),
    type<ValueError>("ValueError"),
    type<std::runtime_error>("std::runtime_error"),
    type<std::logic_error>("std::logic_error"),
    type<std::invalid_argument>("std::invalid_argument"),
    type<std::out_of_range>("std::out_of_range"),
    type<std::domain_error>("std::domain_error"),
    type<std::length_error>("std::length_error"),
    type<std::range_error>("std::range_error"),
    type<std::overflow_error>("std::overflow_error"),
};

}  // namespace

std::string_view carried_type(const std::exception& error) {
  for (const Type& type : kTypes) {
    if (typeid(error) == *type.info) {
      return type.name;
    }
  }
  return {};
}

void throw_again(std::string_view name, const std::string& text) {
  for (const Type& type : kTypes) {
    if (type.name == name) {
      type.raise(text);
    }
  }
}

}  // namespace tandem::inline v0::parallel

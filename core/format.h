#pragma once

#include <concepts>
#include <limits>
#include <string>

#include <fmt/format.h>

#include <tandem/core/device.h>
#include <tandem/core/dtype.h>
#include <tandem/core/shape.h>
#include <tandem/core/thread_state.h>

// Internal: fmt formatters for tandem's types. A check passes values unformatted and pays for formatting only when it
// fails.

namespace tandem::inline v0::core {

/// The number as messages show it: a NaN loses its sign, which means nothing and which x86 sets for 0 / 0.
template <std::floating_point T>
T printable(T value) {
  return value != value ? std::numeric_limits<T>::quiet_NaN() : value;
}

}  // namespace tandem::inline v0::core

template <>
struct fmt::formatter<tandem::Shape> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const tandem::Shape& shape, Context& context) const {
    return fmt::formatter<std::string>::format(tandem::to_string(shape), context);
  }
};

template <>
struct fmt::formatter<tandem::Device> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const tandem::Device& device, Context& context) const {
    return fmt::formatter<std::string>::format(tandem::to_string(device), context);
  }
};

template <>
struct fmt::formatter<tandem::core::MessagePrefix> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const tandem::core::MessagePrefix& prefix, Context& context) const {
    return fmt::formatter<std::string>::format(tandem::core::message_prefix(prefix.op), context);
  }
};

template <>
struct fmt::formatter<tandem::DType> : fmt::formatter<fmt::string_view> {
  template <class Context>
  auto format(tandem::DType dtype, Context& context) const {
    const std::string_view text = tandem::name(dtype);
    return fmt::formatter<fmt::string_view>::format({text.data(), text.size()}, context);
  }
};

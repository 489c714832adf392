#pragma once

#include <concepts>
#include <limits>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/device.h>
#include <tandem/core/dtype.h>
#include <tandem/core/error.h>
#include <tandem/core/shape.h>
#include <tandem/core/thread_state.h>

// Internal (needs fmt): host code checks its input with these functions only. fmt knows tandem's types, so a check
// passes values unformatted and pays for formatting only when it fails.

namespace tandem::inline v0::core {

inline std::string text_of(const Shape& shape) { return to_string(shape); }
inline std::string text_of(const Device& device) { return to_string(device); }
inline std::string text_of(const MessagePrefix& prefix) { return message_prefix(prefix.op); }
inline std::string_view text_of(DType dtype) { return name(dtype); }

/// fmt's formatter of a type that has a text_of().
struct TextFormatter : fmt::formatter<fmt::string_view> {
  template <class T, class Context>
  auto format(const T& value, Context& context) const {
    const auto text = text_of(value);
    return fmt::formatter<fmt::string_view>::format({text.data(), text.size()}, context);
  }
};

}  // namespace tandem::inline v0::core

template <>
struct fmt::formatter<tandem::Shape> : tandem::core::TextFormatter {};
template <>
struct fmt::formatter<tandem::Device> : tandem::core::TextFormatter {};
template <>
struct fmt::formatter<tandem::core::MessagePrefix> : tandem::core::TextFormatter {};
template <>
struct fmt::formatter<tandem::DType> : tandem::core::TextFormatter {};

namespace tandem::inline v0 {

/// A format string that remembers where it was written. A defaulted source_location parameter could not be deduced
/// after a parameter pack, so the format string carries the location.
template <class... Args>
struct LocatedFormat {
  fmt::format_string<Args...> text;
  std::source_location where;

  template <class Text>
  consteval LocatedFormat(const Text& t, std::source_location w = std::source_location::current())
      : text(t), where(w) {}
};

namespace core {

/// The number as messages show it: a NaN loses its sign, which means nothing and which x86 sets for 0 / 0.
template <std::floating_point T>
T printable(T value) {
  return value != value ? std::numeric_limits<T>::quiet_NaN() : value;
}

/// The form in which a message shows a value: numbers pass through printable(), everything else is used as is.
template <std::floating_point T>
T written(const T& value) {
  return printable(value);
}
template <class T>
const T& written(const T& value) {
  return value;  // NOLINT(bugprone-return-const-ref-from-parameter): used up at once, in fail()
}

}  // namespace core

/// Throws E with the formatted message. The function is cold and out of line, so a passing check costs only its branch.
template <class E, class... Args>
[[noreturn, gnu::cold, gnu::noinline]] void fail(LocatedFormat<std::type_identity_t<Args>...> format,
                                                 const Args&... args) {
  const auto text = [&](const auto&... plain) { return fmt::vformat(format.text, fmt::make_format_args(plain...)); };
  throw E(text(core::written(args)...), format.where);
}

/// Throws E unless `ok`: check<ShapeError>(a == b, "add: shapes {} and {} do not broadcast", a, b).
template <class E, class... Args>
inline void check(bool ok, LocatedFormat<std::type_identity_t<Args>...> format, Args&&... args) {
  if (!ok) [[unlikely]] {
    fail<E, Args...>(format, args...);
  }
}

}  // namespace tandem::inline v0

#pragma once

#include <concepts>
#include <source_location>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/core/format.h>

// Internal (needs fmt): the one way in which host code checks its input.

namespace tandem::inline v0 {

/// A format string that remembers where it was written: a trailing defaulted source_location could not be deduced
/// after a parameter pack.
template <class... Args>
struct LocatedFormat {
  fmt::format_string<Args...> text;
  std::source_location where;

  template <class Text>
  consteval LocatedFormat(const Text& t, std::source_location w = std::source_location::current())
      : text(t), where(w) {}
};

namespace core {

/// What a message writes: numbers by printable(), all else as it is.
template <std::floating_point T>
T written(const T& value) {
  return printable(value);
}
template <class T>
const T& written(const T& value) {
  return value;  // NOLINT(bugprone-return-const-ref-from-parameter): used up at once, in fail()
}

}  // namespace core

/// Throws E with the formatted message. Out of line and cold, so that checks cost their branch and no more.
template <class E, class... Args>
[[noreturn, gnu::cold, gnu::noinline]] void fail(LocatedFormat<std::type_identity_t<Args>...> format,
                                                 const Args&... args) {
  const auto text = [&](const auto&... plain) { return fmt::vformat(format.text, fmt::make_format_args(plain...)); };
  throw E(text(core::written(args)...), format.where);
}

/// check<ShapeError>(a == b, "add: shapes {} and {} do not broadcast", a, b);
template <class E, class... Args>
inline void check(bool ok, LocatedFormat<std::type_identity_t<Args>...> format, Args&&... args) {
  if (!ok) [[unlikely]] {
    fail<E, Args...>(format, args...);
  }
}

}  // namespace tandem::inline v0

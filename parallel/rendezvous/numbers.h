#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

// Internal: numbers that others wrote.

namespace tandem::inline v0::parallel {

/// `text` if it is a decimal number within [least, most] and nothing else: no sign but '-', no space, no fraction.
inline std::optional<std::int64_t> parse_number(std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && !text.empty();
  return is_number && number >= least && number <= most ? std::optional(number) : std::nullopt;
}

}  // namespace tandem::inline v0::parallel

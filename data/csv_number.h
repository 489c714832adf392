#pragma once

#include <cstdint>
#include <string_view>

// Internal: decimal numbers in text, in every locale with a point.

namespace tandem::inline v0::data {

enum class FieldKind : std::uint8_t { number, not_finite, text };

/// Reads a whole field: an optional sign, digits with an optional point, an optional exponent, and blanks around them.
/// A number that is too small for a double is 0. `not_finite` are numbers that are too large, and the words "inf" and
/// "infinity".
FieldKind parse_number(std::string_view text, double& value);

/// Reads the number at the beginning of a text, if it begins with a digit, a point or a minus and is within the
/// doubles. Returns its end, with the value of parse_number(), or null for anything else, which parse_number() may
/// still know.
const char* parse_plain_number(const char* begin, const char* end, double& value) noexcept;

}  // namespace tandem::inline v0::data

#pragma once

#include <string>
#include <string_view>

// Internal: makes user-supplied text safe for a terminal line and for XML.

namespace tandem::inline v0::telemetry {

/// Valid UTF-8 on one line: malformed bytes become U+FFFD, control characters become spaces.
std::string clean_text(std::string_view text);

/// Terminal columns of cleaned text. The estimate is never too low: everything from U+1100 on counts as two.
int columns(std::string_view clean);

/// The longest prefix of cleaned text that takes at most `limit` columns.
std::string_view fit_columns(std::string_view clean, int limit);

/// Bytes.
inline constexpr double kMib = 1 << 20;

/// A rate or count with three significant digits: "0.25", "87.3", "41,200".
std::string short_number(double value);

}  // namespace tandem::inline v0::telemetry

#pragma once

#include <span>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0::core {

/// The candidate closest to `word` (edit distance, at most a third of its length), for "did you mean ...?". Returns an
/// empty string if no candidate is close.
TANDEM_API std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace tandem::inline v0::core

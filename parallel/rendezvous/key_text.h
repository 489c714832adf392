#pragma once

#include <string>
#include <string_view>

// Internal: bytes from elsewhere in the text of an error.

namespace tandem::inline v0::parallel {

/// `key` for people: at most 80 bytes of it, and a dot for what a terminal would act upon.
inline std::string shown_key(std::string_view key) {
  constexpr std::size_t kShown = 80;
  std::string text(key.substr(0, kShown));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      c = '.';
    }
  }
  return key.size() > kShown ? text + "..." : text;
}

}  // namespace tandem::inline v0::parallel

#pragma once

#include <cstdint>
#include <string_view>

// Internal: a hash that all hosts and builds compute alike.

namespace tandem::inline v0::core {

/// FNV-1a with 64 bits.
constexpr std::uint64_t fnv1a(std::string_view bytes) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace tandem::inline v0::core

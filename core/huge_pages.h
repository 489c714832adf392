#pragma once

#include <cstddef>

#include <tandem/core/export.h>

// Internal: large blocks whose first touch is cheap.

namespace tandem::inline v0::core {

/// Blocks from this size on are worth huge pages, and alignment to them.
inline constexpr std::size_t kHugeBlock = std::size_t{4} << 20;
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Asks for huge pages for the part of a block, not touched so far, that can have them. The system may decline.
TANDEM_API void use_huge_pages(void* block, std::size_t bytes) noexcept;

}  // namespace tandem::inline v0::core

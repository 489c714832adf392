#pragma once

#include <cstddef>

#include <tandem/core/export.h>

// Internal: the pages of large blocks.

namespace tandem::inline v0::core {

/// Blocks from this size on are worth huge pages, and alignment to them.
inline constexpr std::size_t kHugeBlock = std::size_t{4} << 20;
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Asks for huge pages for the part of a block, not touched so far, that can have them. The system may decline.
TANDEM_API void use_huge_pages(void* block, std::size_t bytes) noexcept;
/// Has the system give the memory of a block now, and not when it is first touched. The system may decline.
TANDEM_API void populate(void* block, std::size_t bytes) noexcept;
/// The pages that lie wholly in a block of private memory lose their content: they take no memory until they are next
/// written, and read as 0 until then. The rest of the block keeps its content.
void drop_pages(void* block, std::size_t bytes) noexcept;
/// The bytes of memory that the pages of a block take.
std::size_t resident_bytes(const void* block, std::size_t bytes);

}  // namespace tandem::inline v0::core

#pragma once

#include <cstdint>

// Internal: random numbers of ranks, the same whether they are threads or processes.

namespace tandem::inline v0::parallel {

/// What a rank's generator is seeded with, where one process would have had `seed`. Rank 0's is that.
constexpr std::uint64_t seed_of_rank(std::uint64_t seed, std::uint64_t rank) {
  return seed + 0xd1b54a32d192ed03U * rank;
}

}  // namespace tandem::inline v0::parallel

#include <bit>
#include <utility>

#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/cuda/patterns/sorted_sum.h>

// A radix sort of positions, from the lowest digit of 8 bits up. Keys stay in place, within reach of the L2 cache. A
// pass is three kernels: tiles count their digits, the counts become offsets, and tiles put their positions there in
// order. A pass reads 16 bytes per entry and writes 4.

namespace tandem::inline v0::kernels {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kDigits = 256;  // one thread for each
constexpr int kDigitBits = 8;
constexpr std::int64_t kTile = 2048;
constexpr unsigned int kAllLanes = 0xFFFFFFFFU;

std::int64_t tiles_of(std::int64_t count) { return (count + kTile - 1) / kTile; }

// One pass: puts positions in order by one digit.
struct Pass {
  const std::uint64_t* keys;
  const std::uint32_t* from;  // null: the list's own order
  std::uint32_t* to;
  std::uint32_t* counts;  // [digit][tile]
  std::uint32_t* totals;
  std::uint32_t count, tiles;
  int shift;

  __device__ std::uint32_t position(std::uint32_t i) const { return from != nullptr ? from[i] : i; }
  __device__ unsigned int digit(std::uint32_t at) const {
    return static_cast<unsigned int>(keys[at] >> shift) & (kDigits - 1);
  }
};

__global__ void __launch_bounds__(kThreads) count_digits(Pass pass) {
  __shared__ unsigned int counts[kDigits];
  counts[threadIdx.x] = 0;
  __syncthreads();
  for (unsigned int k = threadIdx.x; k < kTile; k += kThreads) {
    const std::uint32_t i = blockIdx.x * static_cast<std::uint32_t>(kTile) + k;
    if (i < pass.count) {
      atomicAdd(&counts[pass.digit(pass.position(i))], 1U);
    }
  }
  __syncthreads();
  pass.counts[threadIdx.x * pass.tiles + blockIdx.x] = counts[threadIdx.x];
}

// Each digit has a block, which finds the offset of each tile's entries among all entries of that digit.
__global__ void __launch_bounds__(kThreads) place_tiles(Pass pass) {
  std::uint32_t* counts = pass.counts + blockIdx.x * pass.tiles;
  std::uint32_t before = 0;
  for (std::uint32_t first = 0; first < pass.tiles; first += kThreads) {
    const std::uint32_t tile = first + threadIdx.x;
    std::uint32_t total = 0;
    const std::uint32_t offset = block_exclusive_sum<kThreads>(tile < pass.tiles ? counts[tile] : 0U, total);
    if (tile < pass.tiles) {
      counts[tile] = before + offset;
    }
    before += total;
  }
  if (threadIdx.x == 0) {
    pass.totals[blockIdx.x] = before;
  }
}

__global__ void __launch_bounds__(kThreads) put_in_order(Pass pass) {
  __shared__ std::uint32_t next[kWarps][kDigits];  // place of a warp's next entry of a digit
  std::uint32_t total = 0;
  // Place of the tile's next entry of this thread's digit.
  std::uint32_t place = block_exclusive_sum<kThreads>(pass.totals[threadIdx.x], total) +
                        pass.counts[threadIdx.x * pass.tiles + blockIdx.x];
  const unsigned int warp = threadIdx.x / 32;
  const unsigned int below = (1U << (threadIdx.x % 32)) - 1;
  for (unsigned int k = threadIdx.x; k < kTile; k += kThreads) {
    for (unsigned int w = 0; w < kWarps; ++w) {
      next[w][threadIdx.x] = 0;
    }
    __syncthreads();
    const std::uint32_t i = blockIdx.x * static_cast<std::uint32_t>(kTile) + k;
    const bool exists = i < pass.count;
    const std::uint32_t position = exists ? pass.position(i) : 0;
    const unsigned int digit = exists ? pass.digit(position) : 0;
    unsigned int peers = __ballot_sync(kAllLanes, exists);
    for (int bit = 0; bit < kDigitBits; ++bit) {
      const bool set = ((digit >> bit) & 1U) != 0;
      const unsigned int having = __ballot_sync(kAllLanes, set);
      peers &= set ? having : ~having;
    }
    const auto rank = static_cast<unsigned int>(__popc(peers & below));
    if (exists && rank == 0) {
      next[warp][digit] = static_cast<std::uint32_t>(__popc(peers));
    }
    __syncthreads();
    for (unsigned int w = 0; w < kWarps; ++w) {
      const std::uint32_t entries = next[w][threadIdx.x];
      next[w][threadIdx.x] = place;
      place += entries;
    }
    __syncthreads();
    if (exists) {
      pass.to[next[warp][digit] + rank] = position;
    }
    __syncthreads();
  }
}

}  // namespace

KeySort room_to_sort(const Queue& queue, std::int64_t count) {
  const std::int64_t counts = kDigits * tiles_of(count);
  auto* keys = queue.workspace_array<std::uint64_t>(count + (2 * count + counts + kDigits + 1) / 2);
  auto* positions = reinterpret_cast<std::uint32_t*>(keys + count);
  return {.count = count,
          .keys = keys,
          .positions = positions,
          .spare = positions + count,
          .digit_counts = positions + 2 * count,
          .totals = positions + 2 * count + counts};
}

void sort_positions(const Queue& queue, const char* name, KeySort& sort, std::uint64_t largest) {
  const auto tiles = static_cast<unsigned int>(tiles_of(sort.count));
  Pass pass{.keys = sort.keys,
            .from = nullptr,
            .to = sort.positions,
            .counts = sort.digit_counts,
            .totals = sort.totals,
            .count = static_cast<std::uint32_t>(sort.count),
            .tiles = tiles,
            .shift = 0};
  for (const int bits = std::bit_width(largest); pass.shift == 0 || pass.shift < bits; pass.shift += kDigitBits) {
    queue.launch(name, tiles, kThreads, 0, count_digits, pass);
    queue.launch(name, kDigits, kThreads, 0, place_tiles, pass);
    queue.launch(name, tiles, kThreads, 0, put_in_order, pass);
    std::swap(sort.positions, sort.spare);
    pass.from = sort.spare;
    pass.to = sort.positions;
  }
  std::swap(sort.positions, sort.spare);
}

}  // namespace tandem::inline v0::kernels

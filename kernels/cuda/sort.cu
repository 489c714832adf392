#include <bit>
#include <utility>

#include <tandem/kernels/cuda/sort.h>

// A radix sort from the lowest digit of 8 bits up, of positions alone: keys stay where they are, in reach of the L2
// cache. A pass is three kernels: tiles count their digits, counts become offsets, tiles put their positions there in
// order. Per pass 16 bytes per entry are read and 4 written.

namespace tandem::inline v0::kernels {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kDigits = 256;  // a thread for each
constexpr int kDigitBits = 8;
constexpr std::int64_t kTile = 2048;
constexpr unsigned int kAllLanes = 0xFFFFFFFFU;

std::int64_t tiles_of(std::int64_t count) { return (count + kTile - 1) / kTile; }

// What is to be put in order by one digit.
struct Pass {
  const std::uint64_t* keys;
  const std::uint32_t* from;  // null: as the list stands
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

// The sum of the threads' values before this one; `total` is that of all.
__device__ std::uint32_t sum_before(std::uint32_t value, std::uint32_t& total) {
  __shared__ std::uint32_t sums[kWarps];
  const unsigned int lane = threadIdx.x % 32;
  const unsigned int warp = threadIdx.x / 32;
  std::uint32_t sum = value;
  for (unsigned int step = 1; step < 32; step *= 2) {
    const std::uint32_t below = __shfl_up_sync(kAllLanes, sum, step);
    sum += lane >= step ? below : 0;
  }
  if (lane == 31) {
    sums[warp] = sum;
  }
  __syncthreads();
  std::uint32_t before = 0;
  total = 0;
  for (unsigned int w = 0; w < kWarps; ++w) {
    before += w < warp ? sums[w] : 0;
    total += sums[w];
  }
  __syncthreads();  // the next call overwrites
  return before + sum - value;
}

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

// A block per digit: where each tile's begin among all of that digit.
__global__ void __launch_bounds__(kThreads) place_tiles(Pass pass) {
  std::uint32_t* counts = pass.counts + blockIdx.x * pass.tiles;
  std::uint32_t before = 0;
  for (std::uint32_t first = 0; first < pass.tiles; first += kThreads) {
    const std::uint32_t tile = first + threadIdx.x;
    std::uint32_t total = 0;
    const std::uint32_t offset = sum_before(tile < pass.tiles ? counts[tile] : 0, total);
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
  __shared__ std::uint32_t next[kWarps][kDigits];  // where a warp's entries of a digit go
  std::uint32_t total = 0;
  // This thread's digit: where the tile's next entry goes.
  std::uint32_t place =
      sum_before(pass.totals[threadIdx.x], total) + pass.counts[threadIdx.x * pass.tiles + blockIdx.x];
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

#include <tandem/kernels/cuda/matmul/small_product.h>

#include <algorithm>
#include <cstdint>

#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/cuda/patterns/last_block.h>
#include <tandem/kernels/cuda/patterns/pack.h>
#include <tandem/kernels/matmul_tuning.h>

// A block computes a tile of the result. Each of its warps takes every eighth slice of k by itself: the warp fetches a
// slice into registers, one ahead of the slice that it multiplies, and transposes it in shared memory. These
// independent warps hide the latency that dominates products of this size. At the end the block adds its warps' sums in
// a fixed order. Floor: 2 m n k operations at the GPU's rate for f32. A block reads (kRows + 32) k elements, mostly
// from the L2 cache.

namespace tandem::inline v0::kernels::gpu {

namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpThreads;
constexpr int kColumns = 32;
constexpr int kDepth = 16;  // of a slice of k
constexpr int kColumnsOfThread = 4;
constexpr int kColumnGroups = kColumns / kColumnsOfThread;
constexpr int kRowGroups = kWarpThreads / kColumnGroups;

constexpr std::int64_t kMostBatch = 128;
constexpr std::int64_t kMostDepth = 2048;  // a block walks over all of k
constexpr std::int64_t kMostOutputs = std::int64_t{1} << 20;
constexpr std::int64_t kMostProducts = std::int64_t{1} << 26;

/// The direction in which an operand's elements are neighbours: along k, or along rows of a and columns of b.
enum class Along { k, side };

struct Side {
  const float* data;
  int stride;  // between lines of neighbours
  bool wide;   // lines begin at multiples of 16 bytes
};

struct SmallProduct {
  Side a, b;
  float* out;
  int m, n, k, out_stride;  // 32 bits save registers
  bool accumulate;
  const float* bias;
  bool relu;
  const float* mask;
  float* column_sums;
  float* a_sums;
  float* partial_sums;  // [blocks along m, n]
  unsigned int* tickets;
};

// A warp's part of one operand: kSize rows (or columns) of kDepth elements.
template <Along kAlong, int kSize>
struct Slice {
  static constexpr int kPasses = kSize * kDepth / (4 * kWarpThreads);
  static constexpr int kStride = kSize + 4;  // in shared memory, where element (p, i) is at [p * kStride + i]
  float values[kPasses][4];

  // Elements outside of the matrix become 0.
  __device__ __forceinline__ void fetch(const Side& from, int first, int size, int depth, int k) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int e = (pass * kWarpThreads + lane) * 4;
      const int line = kAlong == Along::k ? first + e / kDepth : depth + e / kSize;
      const int at = kAlong == Along::k ? depth + e % kDepth : first + e % kSize;
      const int lines = kAlong == Along::k ? size : k;
      const int end = kAlong == Along::k ? k : size;
      const float* place = from.data + line * from.stride + at;
      if (line < lines && at + 4 <= end && from.wide) {
        const Pack<float, 4> pack = load_pack<4>(place, true);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          values[pass][j] = pack.values[j];
        }
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          values[pass][j] = line < lines && at + j < end ? place[j] : 0.0F;
        }
      }
    }
  }
  __device__ __forceinline__ void put(float* shared) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int e = (pass * kWarpThreads + lane) * 4;
      if constexpr (kAlong == Along::k) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          shared[(e % kDepth + j) * kStride + e / kDepth] = values[pass][j];
        }
      } else {
        Pack<float, 4> pack;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          pack.values[j] = values[pass][j];
        }
        store_pack_shared(shared + e / kSize * kStride + e % kSize, pack);
      }
    }
  }
};

// The block's totals: of element (row, column) over its warps.
template <int kRows>
__device__ __forceinline__ float total_of(const float* sums, int row, int column) {
  float total = sums[row * kColumns + column];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) {
    total += sums[(w * kRows + row) * kColumns + column];
  }
  return total;
}

// The sum of a column of the tile, and of the whole result in the last of the blocks that share the column.
template <int kRows>
__device__ __forceinline__ void sum_columns(const SmallProduct& by, const float* tile, int column) {
  const bool mine = threadIdx.x < kColumns && column < by.n;
  float sum = 0;
  if (mine) {
    for (int row = 0; row < kRows; ++row) {
      sum += tile[row * kColumns + static_cast<int>(threadIdx.x)];
    }
  }
  if (gridDim.y > 1) {
    if (mine) {
      by.partial_sums[static_cast<int>(blockIdx.y) * by.n + column] = sum;
    }
    if (!is_last_block(by.tickets + blockIdx.x, gridDim.y)) {
      return;
    }
    sum = 0;
    for (int y = 0; mine && y < static_cast<int>(gridDim.y); ++y) {
      sum += by.partial_sums[y * by.n + column];
    }
  }
  if (mine) {
    by.column_sums[column] = sum;
  }
}

template <Along kA, Along kB, int kRows>
__global__ void __launch_bounds__(kThreads, 2) small_product(SmallProduct by) {
  constexpr int kRowsOfThread = kRows / kRowGroups;
  using SliceOfA = Slice<kA, kRows>;
  using SliceOfB = Slice<kB, kColumns>;
  constexpr int kOfA = kDepth * SliceOfA::kStride;
  constexpr int kOfWarp = kOfA + kDepth * SliceOfB::kStride;
  // First the warps' slices, then their sums.
  constexpr int kShared = kOfWarp > kRows * kColumns ? kOfWarp : kRows * kColumns;
  __shared__ __align__(16) float memory[kWarps * kShared];
  __shared__ float a_sums[kWarps * kRows];

  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int row_group = lane / kColumnGroups;
  const int column_group = lane % kColumnGroups;
  const int first_row = static_cast<int>(blockIdx.y) * kRows;
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  const bool sums_a = by.a_sums != nullptr && blockIdx.x == 0;
  float* of_a = memory + warp * kOfWarp;
  float* of_b = of_a + kOfA;

  float sums[kRowsOfThread][kColumnsOfThread] = {};
  float sums_of_a[kRowsOfThread] = {};
  SliceOfA next_a;
  SliceOfB next_b;
  const auto fetch = [&](int depth) {
    next_a.fetch(by.a, first_row, by.m, depth, by.k);
    next_b.fetch(by.b, first_column, by.n, depth, by.k);
  };
  int depth = warp * kDepth;
  if (depth < by.k) {
    fetch(depth);
  }
#pragma unroll 1
  while (depth < by.k) {
    __syncwarp();
    next_a.put(of_a);
    next_b.put(of_b);
    __syncwarp();
    depth += kWarps * kDepth;
    if (depth < by.k) {
      fetch(depth);
    }
#pragma unroll
    for (int p = 0; p < kDepth; ++p) {
      float a[kRowsOfThread];
#pragma unroll
      for (int i = 0; i < kRowsOfThread; i += 4) {
        const auto pack =
            *reinterpret_cast<const Pack<float, 4>*>(of_a + p * SliceOfA::kStride + row_group * kRowsOfThread + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          a[i + j] = pack.values[j];
        }
      }
      const auto b =
          *reinterpret_cast<const Pack<float, 4>*>(of_b + p * SliceOfB::kStride + column_group * kColumnsOfThread);
#pragma unroll
      for (int i = 0; i < kRowsOfThread; ++i) {
#pragma unroll
        for (int j = 0; j < kColumnsOfThread; ++j) {
          sums[i][j] += a[i] * b.values[j];
        }
        if (sums_a) {
          sums_of_a[i] += a[i];
        }
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    const int row = row_group * kRowsOfThread + i;
    Pack<float, 4> pack;
#pragma unroll
    for (int j = 0; j < kColumnsOfThread; ++j) {
      pack.values[j] = sums[i][j];
    }
    store_pack_shared(memory + (warp * kRows + row) * kColumns + column_group * kColumnsOfThread, pack);
    if (sums_a && column_group == 0) {
      a_sums[warp * kRows + row] = sums_of_a[i];
    }
  }
  __syncthreads();

  constexpr int kOutputsOfThread = kRows * kColumns / kThreads;
#pragma unroll
  for (int u = 0; u < kOutputsOfThread; ++u) {
    const int e = u * kThreads + static_cast<int>(threadIdx.x);
    const int row = e / kColumns;
    const int column = e % kColumns;
    const int i = first_row + row;
    const int j = first_column + column;
    float value = total_of<kRows>(memory, row, column);
    if (i < by.m && j < by.n) {
      float& out = by.out[i * by.out_stride + j];
      value = by.accumulate ? out + value : value;
      value += by.bias != nullptr ? by.bias[j] : 0.0F;
      value = by.relu && value < 0 ? 0.0F : value;  // NaN stays
      value = by.mask != nullptr && relu_is_off(by.mask[i * by.out_stride + j]) ? 0.0F : value;
      out = value;
    } else {
      value = 0;
    }
    if (by.column_sums != nullptr) {
      memory[row * kColumns + column] = value;  // nobody else reads this element of the first warp's
    }
  }
  const int thread = static_cast<int>(threadIdx.x);
  if (sums_a && thread < kRows && first_row + thread < by.m) {
    float total = 0;
    for (int w = 0; w < kWarps; ++w) {
      total += a_sums[w * kRows + thread];
    }
    by.a_sums[first_row + thread] = total;
  }
  if (by.column_sums != nullptr) {
    __syncthreads();
    sum_columns<kRows>(by, memory, first_column + thread);
  }
}

Side side_of(const void* data, std::int64_t stride) {
  const auto* values = static_cast<const float*>(data);
  return {.data = values, .stride = static_cast<int>(stride), .wide = stride % 4 == 0 && aligned_for<4>(values)};
}

std::int64_t stride_of(const Matrix& matrix) { return std::max(matrix.row_stride, matrix.col_stride); }
// True if the offsets of so many lines, and of those that fill a tile, fit into 32 bits.
bool fits(std::int64_t lines, std::int64_t stride) { return stride <= INT32_MAX / (lines + kColumns); }
bool along_k_of_a(const Matmul& product) { return product.a.col_stride == 1; }
bool along_k_of_b(const Matmul& product) { return product.b.col_stride != 1; }

}  // namespace

bool is_small_product(const Matmul& product) {
  const bool weight_gradient = !along_k_of_a(product);
  return product.dtype == DType::f32 && get_float32_matmul_precision() == "highest" && cuda::small_products() &&
         product.after.relu_bits == nullptr && (weight_gradient ? product.k : product.m) <= kMostBatch &&
         !(weight_gradient && along_k_of_b(product)) && product.k <= kMostDepth && product.m <= kMostOutputs &&
         product.n <= kMostOutputs / product.m && product.m * product.n <= kMostProducts / product.k &&
         fits(weight_gradient ? product.k : product.m, stride_of(product.a)) &&
         fits(along_k_of_b(product) ? product.n : product.k, stride_of(product.b)) &&
         fits(product.m, product.out_stride);
}

void start_small_product(const Queue& queue, const Matmul& product) {
  const bool a_along_k = along_k_of_a(product);
  const bool b_along_k = along_k_of_b(product);
  const Epilogue& after = product.after;
  SmallProduct by{.a = side_of(product.a.data, a_along_k ? product.a.row_stride : product.a.col_stride),
                  .b = side_of(product.b.data, b_along_k ? product.b.col_stride : product.b.row_stride),
                  .out = static_cast<float*>(product.out),
                  .m = static_cast<int>(product.m),
                  .n = static_cast<int>(product.n),
                  .k = static_cast<int>(product.k),
                  .out_stride = static_cast<int>(product.out_stride),
                  .accumulate = product.accumulate == Accumulate::yes,
                  .bias = static_cast<const float*>(after.bias),
                  .relu = after.relu,
                  .mask = static_cast<const float*>(after.relu_mask),
                  .column_sums = static_cast<float*>(after.column_sums),
                  .a_sums = static_cast<float*>(after.a_sums),
                  .partial_sums = nullptr,
                  .tickets = nullptr};
  const auto launch = [&]<Along kA, Along kB, int kRows>() {
    const dim3 blocks(static_cast<unsigned>((by.n + kColumns - 1) / kColumns),
                      static_cast<unsigned>((by.m + kRows - 1) / kRows));
    // Column sums of several blocks take a ticket for each block along n.
    static_assert(kMostOutputs / (kRows + 1) / kColumns < Queue::kLeastTickets);
    if (by.column_sums != nullptr && blocks.y > 1) {
      by.partial_sums = queue.workspace_array<float>(std::int64_t{blocks.y} * by.n);
      by.tickets = queue.tickets();
    }
    queue.launch(Matmul::kName, blocks, kThreads, 0, small_product<kA, kB, kRows>, by);
  };
  if (!a_along_k) {
    launch.template operator()<Along::side, Along::side, 32>();
  } else if (b_along_k) {
    launch.template operator()<Along::k, Along::k, 16>();
  } else {
    launch.template operator()<Along::k, Along::side, 16>();
  }
}

}  // namespace tandem::inline v0::kernels::gpu

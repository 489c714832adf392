#include <tandem/kernels/matmul.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/gemm.h>

namespace tandem::inline v0::kernels {

namespace {

// Up to so many multiply-adds plain loops beat Eigen's blocked product, and our own.
constexpr std::int64_t kSmall = 4096;
constexpr std::int64_t kTiny = 48;

template <class T>
bool is_own() {
  return !std::is_same_v<T, double> && core::isa() != core::Isa::baseline;
}

// One chunk of output, 1 Mflop at the least: below it a second thread costs more than it saves, mostly for what was
// written by the one and is read by the other (docs/cpu-performance.md).
constexpr std::int64_t kChunkWork = 500'000;
constexpr std::int64_t kRowStep = 16;
// A weight's gradient of so many rows is cut by rows even if there are more columns: then each thread writes the part
// of the weight that it multiplies by in the forward pass.
constexpr std::int64_t kRowsEnough = 64;

// Each output is a dot product. Four sums at once: an addition's latency is four of its throughput.
template <class T, class StrideA, class StrideB>
void small_dots(const Matmul& kernel, StrideA a_stride, StrideB b_stride) {
  using C = ComputeType<T>;
  for (std::int64_t i = 0; i < kernel.m; ++i) {
    const std::int64_t row = i * kernel.out_stride;
    T* out = static_cast<T*>(kernel.out) + row;
    const T* a = static_cast<const T*>(kernel.a.data) + i * kernel.a.row_stride;
    for (std::int64_t j = 0; j < kernel.n; ++j) {
      const T* b = static_cast<const T*>(kernel.b.data) + j * kernel.b.col_stride;
      C sums[4] = {};
      std::int64_t k = 0;
      for (; k + 4 <= kernel.k; k += 4) {
        for (int lane = 0; lane < 4; ++lane) {
          sums[lane] += C(a[(k + lane) * a_stride]) * C(b[(k + lane) * b_stride]);
        }
      }
      for (; k < kernel.k; ++k) {
        sums[0] += C(a[k * a_stride]) * C(b[k * b_stride]);
      }
      out[j] = cpu::finish<T>(kernel, (sums[0] + sums[1]) + (sums[2] + sums[3]), row + j, j);
    }
  }
}

// Rows of b are dense: a row of outputs is a sum of them.
template <class T>
void small_rows(const Matmul& kernel) {
  using C = ComputeType<T>;
  constexpr std::int64_t kWidth = 64;  // columns whose sums stay in L1
  for (std::int64_t i = 0; i < kernel.m; ++i) {
    const T* a = static_cast<const T*>(kernel.a.data) + i * kernel.a.row_stride;
    for (std::int64_t first = 0; first < kernel.n; first += kWidth) {
      const std::int64_t width = std::min(kWidth, kernel.n - first);
      C sums[kWidth] = {};
      for (std::int64_t k = 0; k < kernel.k; ++k) {
        const C factor = a[k * kernel.a.col_stride];
        const T* b = static_cast<const T*>(kernel.b.data) + k * kernel.b.row_stride + first;
        for (std::int64_t j = 0; j < width; ++j) {
          sums[j] += factor * C(b[j]);
        }
      }
      const std::int64_t row = i * kernel.out_stride + first;
      T* out = static_cast<T*>(kernel.out) + row;
      for (std::int64_t j = 0; j < width; ++j) {
        out[j] = cpu::finish<T>(kernel, sums[j], row + j, first + j);
      }
    }
  }
}

template <class T>
void small(const Matmul& kernel) {
  constexpr std::integral_constant<std::int64_t, 1> one;
  if (kernel.a.col_stride == 1 && kernel.b.row_stride == 1) {
    small_dots<T>(kernel, one, one);
  } else if (kernel.b.col_stride == 1 && kernel.n > 1) {
    small_rows<T>(kernel);
  } else {
    small_dots<T>(kernel, kernel.a.col_stride, kernel.b.row_stride);
  }
}

// How many blocks to cut a product into that takes `work` multiply-adds. Eigen's bits depend on the cut, so that must
// not depend on who is there to help; those of our own product don't, and each block packs some of what others pack.
template <class T>
std::int64_t block_count(std::int64_t work) {
  const std::int64_t most = is_own<T>() ? core::ThreadPool::instance().share() : 16;
  return std::clamp<std::int64_t>(work / kChunkWork, 1, most);
}

// Whether the processor multiplies this product's factors as bf16. For few rows the conversion of a right side that f32
// would read in place takes longer than is gained.
bool is_in_bf16(const Matmul& kernel) {
  constexpr std::int64_t kFewRows = 12;
  const bool rounds =
      kernel.dtype == DType::f32 && kernel.in_bf16 && (kernel.m >= kFewRows || kernel.b.col_stride != 1);
  return (kernel.dtype == DType::bf16 || rounds) && core::has_bf16_products();
}

// The product of blocks, of which each is given to one thread.
using Gemm = void(const Matmul&, const cpu::OutputBlock&, ScratchArena&, const cpu::TileUpdate*);
Gemm* gemm_of(const Matmul& kernel) {
#if defined(__x86_64__)
  if (is_in_bf16(kernel)) {
    return core::has_amx() ? &cpu::avx512_amx::gemm_amx : &cpu::avx512_bf16::gemm_bf16;
  }
#endif
  return kernel.dtype == DType::f32 ? TANDEM_BY_ISA(gemm_f32) : TANDEM_BY_ISA(gemm_16_bit);
}

// The longer side is cut, so that each block packs little more than its share. A product with a transposed left side is
// the gradient of a weight.
template <class T>
void blocked(Context& context, const Matmul& kernel, const cpu::TileUpdate* update = nullptr) {
  const bool by_rows = kernel.m >= kernel.n || (kernel.a.col_stride != 1 && kernel.m >= kRowsEnough);
  const std::int64_t total = by_rows ? kernel.m : kernel.n;
  const Device device = context.device;
  Gemm* const gemm = gemm_of(kernel);
  const auto multiply = [&](std::int64_t begin, std::int64_t end) {
    const cpu::OutputBlock block =
        by_rows ? cpu::OutputBlock{begin, end - begin, 0, kernel.n} : cpu::OutputBlock{0, kernel.m, begin, end - begin};
    if constexpr (std::is_same_v<T, double>) {
      TANDEM_BY_ISA(eigen_product_f64)(kernel, block);
    } else {
      gemm(kernel, block, context_for(device).scratch, update);
    }
  };
  const std::int64_t work = kernel.m * kernel.n * kernel.k;
  if (work < 2 * kChunkWork) {
    return multiply(0, total);
  }
  const std::int64_t steps = (total + kRowStep - 1) / kRowStep;
  const std::int64_t blocks = std::min(block_count<T>(work), steps);
  core::ThreadPool::instance().for_each_chunk(blocks, [&](std::int64_t block) {
    const auto border = [&](std::int64_t before) { return std::min(total, steps * before / blocks * kRowStep); };
    multiply(border(block), border(block + 1));
  });
}

template <class T>
void product(Context& context, const Matmul& kernel) {
  if (kernel.m * kernel.n * kernel.k <= (is_own<T>() ? kTiny : kSmall)) {
    small<T>(kernel);
  } else {
    blocked<T>(context, kernel);
  }
}

template <class T>
void write_bits(const Matmul& kernel) {
  for (std::int64_t i = 0; i < kernel.m; ++i) {
    const T* row = static_cast<const T*>(kernel.out) + i * kernel.out_stride;
    auto* bits = static_cast<std::uint8_t*>(kernel.after.relu_bits) + i * relu_bits_stride(kernel.n);
    std::fill_n(bits, (kernel.n + 7) / 8, std::uint8_t{0});
    for (std::int64_t j = 0; j < kernel.n; ++j) {
      const int bit = relu_is_off(ComputeType<T>(row[j])) ? 0 : 1 << j % 8;
      bits[j / 8] = static_cast<std::uint8_t>(bits[j / 8] | bit);
    }
  }
}

}  // namespace

void cpu::multiply_and_update(Context& context, const Matmul& kernel, const TileUpdate& update) {
  blocked<float>(context, kernel, &update);
}

void run(OnCpu, Context& context, const Matmul& kernel) {
  core::dispatch_floating(kernel.dtype, "matmul", [&]<class T>() {
    product<T>(context, kernel);
    if (kernel.after.relu_bits != nullptr) [[unlikely]] {
      write_bits<T>(kernel);
    }
  });
  if (kernel.after.column_sums != nullptr && kernel.n > 0) [[unlikely]] {
    run(OnCpu{}, context, column_sums_of(kernel));
  }
  if (kernel.after.a_sums != nullptr && kernel.m > 0) [[unlikely]] {
    run(OnCpu{}, context, a_sums_of(kernel));
  }
}

void run(OnCpu, Context& context, const BatchedMatmul& kernel) {
  const auto bytes = static_cast<std::int64_t>(item_size(kernel.matrix.dtype));
  const std::int64_t count = kernel.batch.numel();
  const auto moved = [&](const Operand& operand, const void* first, std::int64_t position) {
    const std::int64_t offset = offset_at(kernel.batch, operand.strides, position);
    return static_cast<std::byte*>(const_cast<void*>(first)) + offset * bytes;
  };
  const auto product_at = [&](Context& own, std::int64_t position) {
    Matmul one = kernel.matrix;
    one.a.data = moved(kernel.a, one.a.data, position);
    one.b.data = moved(kernel.b, one.b.data, position);
    one.out = moved(kernel.out, one.out, position);
    run(OnCpu{}, own, one);
  };
  // Large products are split themselves; small ones share the threads batch by batch.
  const std::int64_t work = kernel.matrix.m * kernel.matrix.n * kernel.matrix.k;
  if (work >= 4 * kChunkWork) {
    for (std::int64_t position = 0; position < count; ++position) {
      product_at(context, position);
    }
    return;
  }
  const Device device = context.device;
  core::parallel_for(count, 1 + kChunkWork / (work + 64), [&](std::int64_t begin, std::int64_t end) {
    Context& own = context_for(device);
    for (std::int64_t position = begin; position < end; ++position) {
      product_at(own, position);
    }
  });
}

}  // namespace tandem::inline v0::kernels

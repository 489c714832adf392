#include <cmath>
#include <cstdint>
#include <limits>

#include <tandem/kernels/cuda/cudnn/try.h>
#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/cuda/patterns/exponentials.h>
#include <tandem/kernels/cuda/patterns/rows.h>
#include <tandem/kernels/softmax.h>

// Rows that are dense in memory are computed by rows.h. If neighbours in memory belong to different rows, threads are
// laid over columns: a block then has a tile of neighbouring columns, so that its reads are whole lines, and several
// threads for each column. The second pass over a tile finds it in a cache.

namespace tandem::inline v0::kernels {

namespace {

/// Calls by_rows.operator()<T>(queue) or by_columns, unless cuDNN does the work.
template <class Kernel, class ByRows, class ByColumns>
void run_softmax(Context& context, const Kernel& kernel, ByRows&& by_rows, ByColumns&& by_columns) {
  if (kernel.outer == 0 || kernel.size == 0 || kernel.inner == 0) {
    return;
  }
  const Queue queue(context);
  if (gpu::try_cudnn(queue, kernel)) {
    return;
  }
  for_floating(kernel.dtype, [&]<class T>() {
    kernel.inner == 1 ? by_rows.template operator()<T>(queue) : by_columns.template operator()<T>(queue);
  });
}

namespace columns {

constexpr int kThreads = 256;

struct Tiles {
  std::int64_t outer, size, inner;
  std::int64_t of_row;  // tiles in `inner`
  int width;            // columns in a tile, a power of 2
};

Tiles tiles_of(std::int64_t outer, std::int64_t size, std::int64_t inner) noexcept {
  int width = 1;
  while (width < kThreads && width < inner && (width < kWarpThreads || size * width < 8 * kThreads)) {
    width *= 2;
  }
  return {outer, size, inner, (inner + width - 1) / width, width};
}

/// The threads of a block that share a column.
struct Group {
  int width, column, rank, size;

  __device__ explicit Group(const Tiles& tiles)
      : width(tiles.width),
        column(static_cast<int>(threadIdx.x) % width),
        rank(static_cast<int>(threadIdx.x) / width),
        size(kThreads / width) {}

  /// Reduces the group's values by op; all of its threads get the result. All threads of the block must call.
  template <class T, class Op>
  __device__ T all(T value, Op op) const {
    __shared__ T memory[kThreads];
    __syncthreads();  // all values of an earlier call have been read
    memory[threadIdx.x] = value;
    for (int half = size / 2; half > 0; half /= 2) {
      __syncthreads();
      if (rank < half) {
        memory[threadIdx.x] = op(memory[threadIdx.x], memory[threadIdx.x + half * width]);
      }
    }
    __syncthreads();
    return memory[column];
  }
  __device__ double sum(double value) const { return all(value, Plus()); }
};

// Calls body(offset of a column's first element, its number of elements) for each tile of the block.
template <class Body>
__device__ void for_each_tile(const Tiles& tiles, const Group& group, Body&& body) {
  const std::int64_t count = tiles.outer * tiles.of_row;
  for (std::int64_t tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const std::int64_t row = tile / tiles.of_row;
    const std::int64_t column = (tile - row * tiles.of_row) * tiles.width + group.column;
    body(row * tiles.size * tiles.inner + column, column < tiles.inner ? tiles.size : 0);
  }
}

/// Launches kernel(tiles, arguments...), with one block for each tile.
template <class Kernel, class... Parameters, class... Arguments>
void launch(const Queue& queue, const Kernel& kernel, void (*function)(Tiles, Parameters...),
            const Arguments&... arguments) {
  const Tiles tiles = tiles_of(kernel.outer, kernel.size, kernel.inner);
  queue.launch(Kernel::kName, queue.blocks_for(tiles.outer * tiles.of_row, 1), kThreads, 0, function, tiles,
               arguments...);
}

}  // namespace columns

// ---- Softmax ----
// Moves 8 bytes per element in f32. One read of a row gives both its highest element and the sum of exponentials. The
// row stays in shared memory (up to some 50,000 elements) or, if lanes share it, in the L1 cache until it is written.
// Longer rows are read twice.

template <class T>
struct SoftmaxArguments {
  const T* in;
  T* out;
  std::int64_t rows, size;
  bool log;
};

template <int kBlock, bool kStaged, class T>
__global__ void __launch_bounds__(rows::Group<kBlock>::kThreads, rows::Group<kBlock>::kBlocks)
    softmax_rows(SoftmaxArguments<T> by, rows::Plan plan) {
  using C = ComputeType<T>;
  using Row = PowersOfRow<kBlock, kStaged, T>;
  const rows::Group<kBlock> group(plan.lanes);
  group.for_each(by.rows, [&](std::int64_t row, bool there) {
    const std::int64_t size = Row::kInRegisters || there ? by.size : 0;
    const Row powers(group, by.in + (Row::kInRegisters && !there ? 0 : row) * by.size, size);
    T* out = by.out + row * by.size;
    const C factor = 1 / powers.all.sum;
    if constexpr (Row::kInRegisters) {
      if (there) {
        powers.write(group, out, factor);
      }
    } else {
      const C log_sum = by.log ? std::log(powers.all.sum) : C(0);
      const Powers<C> power = powers.all.powers;
      rows::visit<rows::To::memory, 1, T>(
          group, size, {powers.row}, out, [&]<int V>(const Pack<T, V>(&z)[1], Pack<T, V>& result, std::int64_t) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
              const C value = z[0].values[v];
              result.values[v] = T(by.log ? value - power.highest - log_sum : power.of(value) * factor);
            }
          });
    }
  });
}

template <class T>
__global__ void __launch_bounds__(columns::kThreads, 2)
    softmax_columns(columns::Tiles tiles, const T* in, T* out, bool log) {
  using C = ComputeType<T>;
  constexpr int kUnroll = 4;
  const columns::Group group(tiles);
  columns::for_each_tile(tiles, group, [&](std::int64_t at, std::int64_t size) {
    Exponentials<C> all;
    for (std::int64_t i = group.rank; i < size; i += kUnroll * group.size) {
      Pack<T, 1> x[kUnroll][1];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t k = i + u * group.size;
        x[u][0].values[0] = k < size ? in[at + k * tiles.inner] : T(-std::numeric_limits<C>::infinity());
      }
      all.expect(highest_of(x));
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        all.add(x[u][0].values[0]);
      }
    }
    all.share(group);
    const C log_sum = log ? std::log(all.sum) : C(0);
    const C factor = 1 / all.sum;
    for (std::int64_t i = group.rank; i < size; i += group.size) {
      const C x = in[at + i * tiles.inner];
      out[at + i * tiles.inner] = T(log ? x - all.powers.highest - log_sum : all.powers.of(x) * factor);
    }
  });
}

// ---- SoftmaxGrad ----
// Moves 12 bytes per element in f32. The two rows are read once, for their sum, and stay in shared memory (up to some
// 25,000 elements) or, if lanes share them, in the L1 cache until the gradient is written. Longer rows are read twice.

template <class T>
struct SoftmaxGradArguments {
  const T* grad;
  const T* out;
  T* in_grad;
  std::int64_t rows, size;
  bool log, accumulate;
};

template <int kBlock, bool kStaged, class T>
__global__ void __launch_bounds__(rows::Group<kBlock>::kThreads, rows::Group<kBlock>::kBlocks)
    softmax_grad_rows(SoftmaxGradArguments<T> by, rows::Plan plan) {
  using C = ComputeType<T>;
  const rows::Group<kBlock> group(plan.lanes);
  group.for_each(by.rows, [&](std::int64_t row, bool there) {
    const std::int64_t size = there ? by.size : 0;
    const T* g = by.grad + row * by.size;
    const T* y = by.out + row * by.size;
    T* to = by.in_grad + row * by.size;
    T* g_copy = kStaged ? rows::stage(g, by.size, 0) : nullptr;
    T* y_copy = kStaged ? rows::stage(y, by.size, 1) : nullptr;
    double mine = 0;
    rows::visit<rows::To::nothing, 2, T>(group, size, {g, y}, to,
                                         [&]<int V>(const Pack<T, V>(&z)[2], Pack<T, V>&, std::int64_t c) {
                                           C part = 0;
#pragma unroll
                                           for (int v = 0; v < V; ++v) {
                                             part += by.log ? C(z[0].values[v]) : z[0].values[v] * z[1].values[v];
                                           }
                                           mine += static_cast<double>(part);
                                           if constexpr (kStaged) {
                                             *reinterpret_cast<Pack<T, V>*>(g_copy + c) = z[0];
                                             *reinterpret_cast<Pack<T, V>*>(y_copy + c) = z[1];
                                           }
                                         });
    const C sum = static_cast<C>(group.sum(mine));
    const auto value = [&](C dy, C out) { return by.log ? dy - std::exp(out) * sum : out * (dy - sum); };
    if (by.accumulate) {
      rows::visit<rows::To::memory, 3, T>(group, size, {kStaged ? g_copy : g, kStaged ? y_copy : y, to}, to,
                                          [&]<int V>(const Pack<T, V>(&z)[3], Pack<T, V>& result, std::int64_t) {
#pragma unroll
                                            for (int v = 0; v < V; ++v) {
                                              result.values[v] =
                                                  T(z[2].values[v] + value(z[0].values[v], z[1].values[v]));
                                            }
                                          });
    } else {
      rows::visit<rows::To::memory, 2, T>(group, size, {kStaged ? g_copy : g, kStaged ? y_copy : y}, to,
                                          [&]<int V>(const Pack<T, V>(&z)[2], Pack<T, V>& result, std::int64_t) {
#pragma unroll
                                            for (int v = 0; v < V; ++v) {
                                              result.values[v] = T(value(z[0].values[v], z[1].values[v]));
                                            }
                                          });
    }
  });
}

template <class T>
__global__ void __launch_bounds__(columns::kThreads)
    softmax_grad_columns(columns::Tiles tiles, const T* grad, const T* out, T* in_grad, bool log, bool accumulate) {
  using C = ComputeType<T>;
  const columns::Group group(tiles);
  columns::for_each_tile(tiles, group, [&](std::int64_t first, std::int64_t size) {
    double mine = 0;
#pragma unroll 4
    for (std::int64_t i = group.rank; i < size; i += group.size) {
      const std::int64_t at = first + i * tiles.inner;
      mine += static_cast<double>(log ? C(grad[at]) : grad[at] * out[at]);
    }
    const C sum = static_cast<C>(group.sum(mine));
    for (std::int64_t i = group.rank; i < size; i += group.size) {
      const std::int64_t at = first + i * tiles.inner;
      const C value = log ? grad[at] - std::exp(C(out[at])) * sum : out[at] * (grad[at] - sum);
      in_grad[at] = T(accumulate ? in_grad[at] + value : value);
    }
  });
}

}  // namespace

void run(OnCuda, Context& context, const Softmax& kernel) {
  run_softmax(
      context, kernel,
      [&]<class T>(const Queue& queue) {
        const SoftmaxArguments<T> by{static_cast<const T*>(kernel.in), static_cast<T*>(kernel.out), kernel.outer,
                                     kernel.size, kernel.log};
        const auto launch = [&]<int kBlock>() {
          constexpr bool kStaged = !rows::Group<kBlock>::kInWarp;
          rows::launch<kBlock, softmax_rows<kBlock, kStaged, T>, softmax_rows<kBlock, false, T>, T>(
              queue, Softmax::kName, by, 1);
        };
        if (by.log) {  // made of the elements, of which registers would hold only the powers
          rows::for_row_size(by.size, launch);
        } else {
          for_row_size<T>(by.size, launch, by.in, by.out);
        }
      },
      [&]<class T>(const Queue& queue) {
        columns::launch(queue, kernel, softmax_columns<T>, static_cast<const T*>(kernel.in),
                        static_cast<T*>(kernel.out), kernel.log);
      });
}

void run(OnCuda, Context& context, const SoftmaxGrad& kernel) {
  run_softmax(
      context, kernel,
      [&]<class T>(const Queue& queue) {
        const SoftmaxGradArguments<T> by{.grad = static_cast<const T*>(kernel.grad),
                                         .out = static_cast<const T*>(kernel.out),
                                         .in_grad = static_cast<T*>(kernel.in_grad),
                                         .rows = kernel.outer,
                                         .size = kernel.size,
                                         .log = kernel.log,
                                         .accumulate = kernel.accumulate == Accumulate::yes};
        rows::for_row_size(by.size, [&]<int kBlock>() {
          constexpr bool kStaged = !rows::Group<kBlock>::kInWarp;
          rows::launch<kBlock, softmax_grad_rows<kBlock, kStaged, T>, softmax_grad_rows<kBlock, false, T>, T>(
              queue, SoftmaxGrad::kName, by, 2);
        });
      },
      [&]<class T>(const Queue& queue) {
        columns::launch(queue, kernel, softmax_grad_columns<T>, static_cast<const T*>(kernel.grad),
                        static_cast<const T*>(kernel.out), static_cast<T*>(kernel.in_grad), kernel.log,
                        kernel.accumulate == Accumulate::yes);
      });
}

}  // namespace tandem::inline v0::kernels

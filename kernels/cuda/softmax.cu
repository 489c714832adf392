#include <cmath>
#include <limits>

#include <tandem/kernels/cuda/patterns/exponentials.h>
#include <tandem/kernels/cuda/softmax.h>

// Moves 8 bytes per element in f32. One read of a row gives both its highest element and the sum of exponentials. The
// row stays in shared memory (up to some 50,000 elements) or, if lanes share it, in the L1 cache until it is written.
// Longer rows are read twice.

namespace tandem::inline v0::kernels {

namespace {

template <class T>
struct SoftmaxArguments {
  const T* in;
  T* out;
  std::int64_t rows, size;
  bool log;
};

template <int kBlock, class T>
__global__ void __launch_bounds__(rows::Group<kBlock>::kThreads, rows::Group<kBlock>::kBlocks)
    softmax_rows(SoftmaxArguments<T> by, rows::Plan plan) {
  using C = ComputeType<T>;
  const rows::Group<kBlock> group(plan.lanes);
  group.for_each(by.rows, [&](std::int64_t row, bool there) {
    const std::int64_t size = there ? by.size : 0;
    const T* x = by.in + row * by.size;
    T* copy = plan.staged ? rows::stage(x, by.size, 0) : nullptr;
    const auto all = exponentials(group, x, size, copy);
    const C log_sum = by.log ? static_cast<C>(std::log(all.sum)) : C(0);
    const C factor = static_cast<C>(1 / all.sum);
    rows::visit<true, 1, T>(group, size, {plan.staged ? copy : x}, by.out + row * by.size,
                            [&]<int V>(const Pack<T, V>(&z)[1], Pack<T, V>& result, std::int64_t) {
#pragma unroll
                              for (int v = 0; v < V; ++v) {
                                const C shifted = z[0].values[v] - all.highest;
                                result.values[v] = T(by.log ? shifted - log_sum : std::exp(shifted) * factor);
                              }
                            });
  });
}

template <class T>
__global__ void __launch_bounds__(columns::kThreads)
    softmax_columns(columns::Tiles tiles, const T* in, T* out, bool log) {
  using C = ComputeType<T>;
  constexpr int kUnroll = 4;
  const columns::Group group(tiles);
  columns::for_each_tile(tiles, group, [&](std::int64_t at, std::int64_t size) {
    Exponentials<C> found;
    for (std::int64_t i = group.rank; i < size; i += kUnroll * group.size) {
      C x[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t k = i + u * group.size;
        x[u] = k < size ? C(in[at + k * tiles.inner]) : -std::numeric_limits<C>::infinity();
      }
      found.add(x);
    }
    const auto all = found.joined(group);
    const C shift = log ? static_cast<C>(std::log(all.sum)) : C(0);
    const C factor = log ? C(1) : static_cast<C>(1 / all.sum);
    for (std::int64_t i = group.rank; i < size; i += group.size) {
      const C x = C(in[at + i * tiles.inner]) - all.highest;
      out[at + i * tiles.inner] = T(log ? x - shift : std::exp(x) * factor);
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
        rows::for_row_size(by.size, [&]<int kBlock>() {
          rows::launch<kBlock, softmax_rows<kBlock, T>, T>(queue, Softmax::kName, by, 1);
        });
      },
      [&]<class T>(const Queue& queue) {
        columns::launch(queue, kernel, softmax_columns<T>, static_cast<const T*>(kernel.in),
                        static_cast<T*>(kernel.out), kernel.log);
      });
}

}  // namespace tandem::inline v0::kernels

#include <cmath>

#include <tandem/kernels/cuda/patterns/rows.h>
#include <tandem/kernels/cuda/softmax.h>

// Moves 12 bytes per element in f32. The two rows are read once, for their sum, and stay in shared memory (up to some
// 25,000 elements) or, if lanes share them, in the L1 cache until the gradient is written. Longer rows are read twice.

namespace tandem::inline v0::kernels {

namespace {

template <class T>
struct SoftmaxGradArguments {
  const T* grad;
  const T* out;
  T* in_grad;
  std::int64_t rows, size;
  bool log, accumulate;
};

template <int kBlock, class T>
__global__ void __launch_bounds__(rows::Group<kBlock>::kThreads, rows::Group<kBlock>::kBlocks)
    softmax_grad_rows(SoftmaxGradArguments<T> by, rows::Plan plan) {
  using C = ComputeType<T>;
  const rows::Group<kBlock> group(plan.lanes);
  group.for_each(by.rows, [&](std::int64_t row, bool there) {
    const std::int64_t size = there ? by.size : 0;
    const T* g = by.grad + row * by.size;
    const T* y = by.out + row * by.size;
    T* to = by.in_grad + row * by.size;
    T* g_copy = plan.staged ? rows::stage(g, by.size, 0) : nullptr;
    T* y_copy = plan.staged ? rows::stage(y, by.size, 1) : nullptr;
    double mine = 0;
    rows::visit<false, 2, T>(group, size, {g, y}, to, [&]<int V>(const Pack<T, V>(&z)[2], Pack<T, V>&, std::int64_t c) {
      C part = 0;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        part += by.log ? C(z[0].values[v]) : z[0].values[v] * z[1].values[v];
      }
      mine += static_cast<double>(part);
      if (plan.staged) {
        *reinterpret_cast<Pack<T, V>*>(g_copy + c) = z[0];
        *reinterpret_cast<Pack<T, V>*>(y_copy + c) = z[1];
      }
    });
    const C sum = static_cast<C>(group.sum(mine));
    const auto value = [&](C dy, C out) { return by.log ? dy - std::exp(out) * sum : out * (dy - sum); };
    if (by.accumulate) {
      rows::visit<true, 3, T>(group, size, {plan.staged ? g_copy : g, plan.staged ? y_copy : y, to}, to,
                              [&]<int V>(const Pack<T, V>(&z)[3], Pack<T, V>& result, std::int64_t) {
#pragma unroll
                                for (int v = 0; v < V; ++v) {
                                  result.values[v] = T(z[2].values[v] + value(z[0].values[v], z[1].values[v]));
                                }
                              });
    } else {
      rows::visit<true, 2, T>(group, size, {plan.staged ? g_copy : g, plan.staged ? y_copy : y}, to,
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
          rows::launch<kBlock, softmax_grad_rows<kBlock, T>, T>(queue, SoftmaxGrad::kName, by, 2);
        });
      },
      [&]<class T>(const Queue& queue) {
        columns::launch(queue, kernel, softmax_grad_columns<T>, static_cast<const T*>(kernel.grad),
                        static_cast<const T*>(kernel.out), static_cast<T*>(kernel.in_grad), kernel.log,
                        kernel.accumulate == Accumulate::yes);
      });
}

}  // namespace tandem::inline v0::kernels

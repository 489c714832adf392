#include <tandem/kernels/cuda/cudnn/try.h>
#include <tandem/kernels/cuda/dispatch.h>
#include <tandem/kernels/cuda/row_launch.h>
#include <tandem/kernels/cuda/softmax_columns.h>
#include <tandem/kernels/softmax_loss.h>

// In f32 12 bytes per element: the two rows are read once, for their sum, and stay in shared memory (up to some 25,000
// elements) or, where lanes share them, in the first cache until the gradient is written. Longer rows are read twice.

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
    softmax_grad(SoftmaxGradArguments<T> by, rows::Plan plan) {
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

}  // namespace

void run(OnCuda, Context& context, const SoftmaxGrad& kernel) {
  if (kernel.outer == 0 || kernel.size == 0 || kernel.inner == 0) {
    return;
  }
  const Queue queue(context);
  if (gpu::try_cudnn(queue, context, kernel)) {
    return;
  }
  for_floating(kernel.dtype, [&]<class T>() {
    if (kernel.inner != 1) {
      return columns::launch_softmax_grad<T>(queue, kernel);
    }
    rows::for_row_size(kernel.size, [&]<int kBlock>() {
      const SoftmaxGradArguments<T> by{.grad = static_cast<const T*>(kernel.grad),
                                       .out = static_cast<const T*>(kernel.out),
                                       .in_grad = static_cast<T*>(kernel.in_grad),
                                       .rows = kernel.outer,
                                       .size = kernel.size,
                                       .log = kernel.log,
                                       .accumulate = kernel.accumulate == Accumulate::yes};
      const rows::Plan plan = rows::plan<kBlock, softmax_grad<kBlock, T>, T>(queue, by.rows, by.size, 2);
      queue.launch(SoftmaxGrad::kName, plan.blocks, rows::Group<kBlock>::kThreads, plan.shared, softmax_grad<kBlock, T>,
                   by, plan);
    });
  });
}

}  // namespace tandem::inline v0::kernels

#include <tandem/kernels/cuda/cudnn/try.h>
#include <tandem/kernels/cuda/dispatch.h>
#include <tandem/kernels/cuda/row_launch.h>
#include <tandem/kernels/cuda/softmax_columns.h>
#include <tandem/kernels/softmax_loss.h>

// In f32 8 bytes per element: a row is read once, for its highest element and the sum of exponentials together, and
// stays in shared memory (up to some 50,000 elements) or, where lanes share it, in the first cache until it is written.
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
    softmax(SoftmaxArguments<T> by, rows::Plan plan) {
  using C = ComputeType<T>;
  const rows::Group<kBlock> group(plan.lanes);
  group.for_each(by.rows, [&](std::int64_t row, bool there) {
    const std::int64_t size = there ? by.size : 0;
    const T* x = by.in + row * by.size;
    T* copy = plan.staged ? rows::stage(x, by.size, 0) : nullptr;
    const auto all = rows::exponentials(group, x, size, copy);
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

}  // namespace

void run(OnCuda, Context& context, const Softmax& kernel) {
  if (kernel.outer == 0 || kernel.size == 0 || kernel.inner == 0) {
    return;
  }
  const Queue queue(context);
  if (gpu::try_cudnn(queue, context, kernel)) {
    return;
  }
  for_floating(kernel.dtype, [&]<class T>() {
    if (kernel.inner != 1) {
      return columns::launch_softmax<T>(queue, kernel);
    }
    rows::for_row_size(kernel.size, [&]<int kBlock>() {
      const SoftmaxArguments<T> by{static_cast<const T*>(kernel.in), static_cast<T*>(kernel.out), kernel.outer,
                                   kernel.size, kernel.log};
      const rows::Plan plan = rows::plan<kBlock, softmax<kBlock, T>, T>(queue, by.rows, by.size, 1);
      queue.launch(Softmax::kName, plan.blocks, rows::Group<kBlock>::kThreads, plan.shared, softmax<kBlock, T>, by,
                   plan);
    });
  });
}

}  // namespace tandem::inline v0::kernels

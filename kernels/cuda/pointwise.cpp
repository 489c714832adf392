#include <tandem/kernels/pointwise.h>

#include <type_traits>

#include <tandem/core/check.h>
#include <tandem/core/dispatch.h>
#include <tandem/kernels/cuda/cudnn/try.h>
#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/pointwise_table.h>

namespace tandem::inline v0::kernels {

void run(OnCuda, Context& context, const Pointwise& kernel) {
  const Queue queue(context);
  if (gpu::try_cudnn(queue, kernel)) {
    return;
  }
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>) {
      fail<DTypeError>("arithmetic on bool is not defined; convert with .to(DType::i64)");
    } else if constexpr (std::is_integral_v<T>) {
      check<DTypeError>(kernel.op <= kLastIntegerPointwise,
                        "this operation needs floating point, got {}; convert with .to(DType::f32)", kernel.dtype);
      gpu::integer_launcher<T>(kernel.op)(queue, kernel);
    } else {
      const auto find = kernel.op < gpu::kFirstFunction ? gpu::arithmetic_launcher<T>
                        : kernel.op < gpu::kSecondHalf  ? gpu::function_launcher<T>
                                                        : gpu::gradient_launcher<T>;
      find(kernel.op)(queue, kernel);
    }
  });
}

}  // namespace tandem::inline v0::kernels

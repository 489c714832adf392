#pragma once

#include <tandem/kernels/launch.h>
#include <tandem/kernels/pointwise.h>
#include <tandem/kernels/softmax_loss.h>

// Internal: what the kernels that cuDNN has, too, call first. True: cuDNN was asked for, and has done it. Needs neither
// cuDNN's headers nor CUDA's.

#ifndef TANDEM_WITH_CUDNN
#error "sources that include this are named in tandem_use_cudnn()"
#endif

namespace tandem::inline v0::kernels {

class Queue;

namespace gpu {

#if TANDEM_WITH_CUDNN
TANDEM_API bool try_cudnn(const Queue& queue, Context& context, const Softmax& kernel);
TANDEM_API bool try_cudnn(const Queue& queue, Context& context, const SoftmaxGrad& kernel);
TANDEM_API bool try_cudnn(const Queue& queue, Context& context, const Pointwise& kernel);
#else
template <class Kernel>
bool try_cudnn(const Queue&, Context&, const Kernel&) {
  return false;
}
#endif

}  // namespace gpu
}  // namespace tandem::inline v0::kernels

#pragma once

#include <tandem/kernels/conv.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/pointwise.h>
#include <tandem/kernels/softmax.h>

// First call of kernels that cuDNN also has. Returns true if cuDNN was asked for and has done the work. This header
// needs neither cuDNN's headers nor CUDA's.

#ifndef TANDEM_WITH_CUDNN
#error "sources that include this are named in tandem_use_cudnn()"
#endif

namespace tandem::inline v0::kernels {

class Queue;

namespace gpu {

#if TANDEM_WITH_CUDNN
TANDEM_API bool try_cudnn(const Queue& queue, const Softmax& kernel);
TANDEM_API bool try_cudnn(const Queue& queue, const SoftmaxGrad& kernel);
TANDEM_API bool try_cudnn(const Queue& queue, const Pointwise& kernel);
TANDEM_API bool try_cudnn(const Queue& queue, const Conv& kernel);
TANDEM_API bool try_cudnn(const Queue& queue, const ConvInGrad& kernel);
TANDEM_API bool try_cudnn(const Queue& queue, const ConvWeightGrad& kernel);
#else
template <class Kernel>
bool try_cudnn(const Queue&, const Kernel&) {
  return false;
}
#endif

}  // namespace gpu
}  // namespace tandem::inline v0::kernels

#include "reglu_kernel.h"

#include <tandem/kernels/cuda/cuda_queue.h>

using namespace tandem;

namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void forward(ReGlu<T> k) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < k.count;
       i += std::int64_t{gridDim.x} * kThreads) {
    k.out[i] = relu_of(k.a[i]) * k.b[i];
  }
}

template <class T>
__global__ void backward(ReGluGrad<T> k) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < k.count;
       i += std::int64_t{gridDim.x} * kThreads) {
    k.a_grad[i] = k.grad[i] * k.b[i] * slope_of(k.a[i]);
    k.b_grad[i] = k.grad[i] * relu_of(k.a[i]);
  }
}

}  // namespace

template <class T>
void run(kernels::OnCuda, kernels::Context& context, const ReGlu<T>& k) {
  const kernels::CudaQueue queue(context);
  queue.launch(k.kName, queue.blocks_for(k.count, kThreads), kThreads, 0, forward<T>, k);
}

template <class T>
void run(kernels::OnCuda, kernels::Context& context, const ReGluGrad<T>& k) {
  const kernels::CudaQueue queue(context);
  queue.launch(k.kName, queue.blocks_for(k.count, kThreads), kThreads, 0, backward<T>, k);
}

template void run(kernels::OnCuda, kernels::Context&, const ReGlu<float>&);
template void run(kernels::OnCuda, kernels::Context&, const ReGlu<double>&);
template void run(kernels::OnCuda, kernels::Context&, const ReGluGrad<float>&);
template void run(kernels::OnCuda, kernels::Context&, const ReGluGrad<double>&);

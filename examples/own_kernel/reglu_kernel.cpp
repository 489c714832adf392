#include "reglu_kernel.h"

#include <tandem/core/thread_pool.h>

using namespace tandem;

namespace {

// Elements that one thread takes at a time.
constexpr std::int64_t kGrain = 16'384;

}  // namespace

template <class T>
void run(kernels::OnCpu, kernels::Context&, const ReGlu<T>& k) {
  core::parallel_for(k.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      k.out[i] = relu_of(k.a[i]) * k.b[i];
    }
  });
}

template <class T>
void run(kernels::OnCpu, kernels::Context&, const ReGluGrad<T>& k) {
  core::parallel_for(k.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      k.a_grad[i] = k.grad[i] * k.b[i] * slope_of(k.a[i]);
      k.b_grad[i] = k.grad[i] * relu_of(k.a[i]);
    }
  });
}

template void run(kernels::OnCpu, kernels::Context&, const ReGlu<float>&);
template void run(kernels::OnCpu, kernels::Context&, const ReGlu<double>&);
template void run(kernels::OnCpu, kernels::Context&, const ReGluGrad<float>&);
template void run(kernels::OnCpu, kernels::Context&, const ReGluGrad<double>&);

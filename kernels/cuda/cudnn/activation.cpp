#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <tandem/core/cuda/per_gpu.h>
#include <tandem/kernels/cuda/cudnn/activation_plan.h>
#include <tandem/kernels/cuda/cudnn/graph.h>
#include <tandem/kernels/cuda/cudnn/plan_cache.h>
#include <tandem/kernels/cuda/cudnn/try.h>
#include <tandem/kernels/kernel_library.h>
#include <tandem/kernels/pointwise_formulas.h>

// Activations computed by cuDNN's graphs.

namespace tandem::inline v0::kernels::gpu {

namespace {

using namespace cudnn;

// True for dense tensors that are neither updated in place (cuDNN makes no promise about that) nor accumulated.
bool fits(const Pointwise& kernel) {
  const auto dense = [&](const Operand& operand) { return kernel.loop.sizes[0] == 1 || operand.strides[0] == 1; };
  if (kernel.accumulate != Accumulate::no || kernel.loop.ndim != 1 || !dense(kernel.out) || kernel.loop.sizes[0] < 1 ||
      kernel.loop.sizes[0] > INT32_MAX) {
    return false;
  }
  for (int i = 0; i < arity(kernel.op); ++i) {
    if (!dense(kernel.in[i]) || kernel.in[i].data == kernel.out.data) {
      return false;
    }
  }
  return true;
}

ActivationKey key_of(const Pointwise& kernel) {
  ActivationKey key{.op = kernel.op,
                    .dtype = kernel.dtype,
                    .numel = kernel.loop.sizes[0],
                    .alignment = {tensor_alignment(kernel.out.data)},
                    .s = depends_on_s(kernel.op) ? kernel.s : 0};
  for (int i = 0; i < arity(kernel.op); ++i) {
    key.alignment[static_cast<std::size_t>(i) + 1] = tensor_alignment(kernel.in[i].data);
  }
  return key;
}

bool start(const Queue& queue, const Pointwise& kernel) {
  Session* const session = Session::of(queue);
  if (session == nullptr) {
    return false;
  }
  static constinit cuda::PerGpu<PlanCache<ActivationKey, ActivationPlan>, cuda::LockPlace::library_made> caches;
  auto& cache =
      caches.get(queue.gpu().index, [] { return std::make_unique<PlanCache<ActivationKey, ActivationPlan>>(); });
  const std::lock_guard lock(session->mutex);
  const ActivationKey key = key_of(kernel);
  const ActivationPlan* const plan =
      cache.find(key, queue.is_capturing(), [&] { return make_activation_plan(session->handle, key); });
  if (plan == nullptr) {
    return false;
  }
  const float one = 1;
  Addresses addresses{{0, kernel.out.data}};
  for (int i = 0; i < arity(kernel.op); ++i) {
    addresses.emplace_back(i + 1, kernel.in[i].data);
  }
  if (plan->takes_one) {
    addresses.emplace_back(ActivationPlan::kOne, &one);
  }
  const void* workspace = plan->workspace > 0 ? queue.workspace(static_cast<std::size_t>(plan->workspace)) : nullptr;
  return execute(queue, *session, *plan, addresses, workspace, Pointwise::kName);
}

}  // namespace

bool try_cudnn(const Queue& queue, const Pointwise& kernel) {
  return has_activation(kernel) && cuda::activation_library() == cuda::KernelLibrary::cudnn && fits(kernel) &&
         start(queue, kernel);
}

}  // namespace tandem::inline v0::kernels::gpu

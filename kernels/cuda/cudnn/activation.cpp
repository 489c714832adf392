#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <tandem/core/cuda/per_gpu.h>
#include <tandem/kernels/cuda/cudnn/activation_plan.h>
#include <tandem/kernels/cuda/cudnn/library.h>
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

std::int64_t alignment_of(const void* data) {
  constexpr std::uintptr_t kMost = 16;
  const auto address = reinterpret_cast<std::uintptr_t>(data) | kMost;
  return static_cast<std::int64_t>(address & (~address + 1));
}

ActivationKey key_of(const Pointwise& kernel) {
  ActivationKey key{.op = kernel.op,
                    .dtype = kernel.dtype,
                    .numel = kernel.loop.sizes[0],
                    .alignment = {alignment_of(kernel.out.data)},
                    .s = depends_on_s(kernel.op) ? kernel.s : 0};
  for (int i = 0; i < arity(kernel.op); ++i) {
    key.alignment[static_cast<std::size_t>(i) + 1] = alignment_of(kernel.in[i].data);
  }
  return key;
}

void execute(const Queue& queue, cudnnHandle_t handle, const ActivationPlan& plan, const Pointwise& kernel) {
  const float one = 1;
  std::vector<std::int64_t> numbers{0};
  std::vector<const void*> addresses{kernel.out.data};
  for (int i = 0; i < arity(kernel.op); ++i) {
    numbers.push_back(i + 1);
    addresses.push_back(kernel.in[i].data);
  }
  if (plan.takes_one) {
    numbers.push_back(ActivationPlan::kOne);
    addresses.push_back(&one);
  }
  const void* workspace = plan.workspace > 0 ? queue.workspace(static_cast<std::size_t>(plan.workspace)) : nullptr;
  cuda::note_launch(Pointwise::kName);
  try {
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, numbers)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, addresses)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
        .finish();
    require(api().cudnnBackendExecute(handle, plan.plan(), pack.get()), "cudnnBackendExecute");
  } catch (const Refusal& refusal) {
    throw_status(refusal.status, "a variant pack");
  }
}

bool start(const Queue& queue, const Pointwise& kernel) {
  Session* const session = Session::of(queue);
  if (session == nullptr) {
    return false;
  }
  const ActivationKey key = key_of(kernel);
  using Plans = std::map<ActivationKey, std::optional<ActivationPlan>>;  // nullopt if cuDNN has no kernel
  static constinit cuda::PerGpu<Plans, cuda::LockPlace::library_made> of_gpus;
  Plans& plans = of_gpus.get(queue.gpu().index, [] { return std::make_unique<Plans>(); });
  const std::lock_guard lock(session->mutex);
  auto found = plans.find(key);
  if (found == plans.end()) {
    if (queue.is_capturing()) {
      return false;
    }
    found = plans.emplace(key, make_plan(session->handle, key)).first;
  }
  if (!found->second) {
    return false;
  }
  require(api().cudnnSetStream(session->handle, queue.stream()), "cudnnSetStream");
  execute(queue, session->handle, *found->second, kernel);
  return true;
}

}  // namespace

bool try_cudnn(const Queue& queue, const Pointwise& kernel) {
  return has_activation(kernel) && cuda::activation_library() == cuda::KernelLibrary::cudnn && fits(kernel) &&
         start(queue, kernel);
}

}  // namespace tandem::inline v0::kernels::gpu

#include <tandem/parallel/distributed/comm_hook.h>

#include <cstdint>

#include <tandem/autograd/ops.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

namespace {

CommHook compress_hook(DType dtype) {
  return [dtype](ProcessGroup& group, const GradBucket& bucket) -> std::function<void()> {
    const Tensor small = bucket.gradients.to(dtype);
    Work work = group.all_reduce(small, ReduceOp::avg, true);
    return [work, small, gradients = bucket.gradients]() mutable {
      work.wait();
      gradients.copy_(small);
    };
  };
}

}  // namespace

CommHook fixed_order_hook() {
  return [](ProcessGroup& group, const GradBucket& bucket) -> std::function<void()> {
    Tensor gradients = bucket.gradients;
    const std::int64_t slice = (gradients.numel() + group.size() - 1) / group.size();
    const Tensor all = zeros({group.size() * slice}, {.dtype = gradients.dtype(), .device = gradients.device()});
    all.narrow(0, 0, gradients.numel()).copy_(gradients);
    const Tensor parts = empty_like(all);
    Work work = group.all_to_all_single(parts, all, true);
    return [work, gradients, all, parts, slice, &group]() mutable {
      work.wait();
      const DType wide = promote_types(gradients.dtype(), DType::f32);
      Tensor sum = parts.narrow(0, 0, slice).to(wide);
      for (int r = 1; r < group.size(); ++r) {
        sum = sum + parts.narrow(0, r * slice, slice).to(wide);
      }
      group.all_gather_into_tensor(all, (sum / static_cast<double>(group.size())).to(gradients.dtype()));
      gradients.copy_(all.narrow(0, 0, gradients.numel()));
    };
  };
}

CommHook bf16_compress_hook() { return compress_hook(DType::bf16); }

CommHook fp16_compress_hook() { return compress_hook(DType::f16); }

}  // namespace tandem::inline v0::parallel

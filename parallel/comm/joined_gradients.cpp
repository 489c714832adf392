#include <tandem/parallel/comm/joined_gradients.h>

#include <cstdint>
#include <map>
#include <utility>

#include <tandem/autograd/ops.h>
#include <tandem/core/grad_mode.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

void all_reduce_gradients(const std::vector<Tensor>& parameters, ProcessGroup& group, ReduceOp op) {
  std::map<std::pair<DType, int>, std::vector<Tensor>> alike;
  for (const Tensor& parameter : parameters) {
    if (!parameter.requires_grad()) {
      continue;
    }
    if (!parameter.grad().defined()) {
      parameter.backward(zeros_like(parameter.detach()));
    }
    alike[{parameter.dtype(), parameter.device().index}].push_back(parameter.grad());
  }
  const NoGradGuard no_grad;
  for (auto& [kind, gradients] : alike) {
    std::vector<Tensor> flat;
    for (const Tensor& gradient : gradients) {
      flat.push_back(gradient.flatten());
    }
    const Tensor joined = cat(flat);
    group.all_reduce(joined, op);
    std::int64_t begin = 0;
    for (Tensor& gradient : gradients) {
      gradient.copy_(joined.narrow(0, begin, gradient.numel()).view(gradient.shape()));
      begin += gradient.numel();
    }
  }
}

}  // namespace tandem::inline v0::parallel

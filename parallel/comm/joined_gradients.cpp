#include <tandem/parallel/comm/joined_gradients.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <tandem/autograd/ops.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/span.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

void all_reduce_gradients(const std::vector<Tensor>& parameters, ProcessGroup& group, ReduceOp op) {
  const SpanScope timed(Phase::reduce);
  // In the order in which kinds first appear, which is the same on all ranks, unlike the numbers of devices.
  std::vector<std::vector<Tensor>> alike;
  for (const Tensor& parameter : parameters) {
    if (!parameter.requires_grad()) {
      continue;
    }
    if (!parameter.grad().defined()) {
      parameter.backward(zeros_like(parameter.detach()));
    }
    const Tensor gradient = parameter.grad();
    const auto same = std::ranges::find_if(alike, [&](const std::vector<Tensor>& others) {
      return others.front().dtype() == gradient.dtype() && others.front().device() == gradient.device();
    });
    same == alike.end() ? alike.push_back({gradient}) : same->push_back(gradient);
  }
  const NoGradGuard no_grad;
  for (std::vector<Tensor>& gradients : alike) {
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

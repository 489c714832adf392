#include <tandem/optim/clip.h>

#include <tandem/autograd/parameter_store.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/kernels/optimizer.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::optim {

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm) {
  check<ConfigError>(max_norm > 0, "clip_grad_norm_: max_norm must be > 0, got {}", max_norm);
  check<ConfigError>(!parameters.empty(), "clip_grad_norm_: the list of parameters is empty");
  const NoGradGuard no_grad;
  const Device device = parameters[0].device();
  Tensor squared = zeros({}, {.dtype = DType::f64, .device = device});
  auto* total = squared.mutable_data<double>();
  const std::vector<ParameterRun> runs =
      gradient_runs(sorted_by_place(parameters), [](std::size_t, std::size_t) { return true; });
  for (const ParameterRun& run : runs) {
    check<DeviceError>(run.device == device,
                       "clip_grad_norm_: gradients are on {} and {}; clip them one device at a time", device,
                       run.device);
    kernels::launch(kernels::context_for(device), kernels::SquaredNorm{.dtype = run.dtype,
                                                                       .accumulate = kernels::Accumulate::yes,
                                                                       .count = run.numel,
                                                                       .values = run.gradients,
                                                                       .total = total});
  }
  for (const ParameterRun& run : runs) {
    kernels::launch(kernels::context_for(device), kernels::ClipByNorm{.dtype = run.dtype,
                                                                      .count = run.numel,
                                                                      .values = run.gradients,
                                                                      .squared_norm = total,
                                                                      .max_norm = max_norm});
  }
  for (const Tensor& parameter : parameters) {
    if (const Tensor grad = parameter.grad(); grad.defined()) {
      grad.raw().storage->bump_version();
    }
  }
  return squared.sqrt();
}

}  // namespace tandem::inline v0::optim

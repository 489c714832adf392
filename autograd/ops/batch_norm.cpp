#include <tandem/autograd/ops/norm.h>
#include <tandem/kernels/batch_norm.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// Sizes of what the channels of x have.
Shape check_channels(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, bool training) {
  const core::MessagePrefix prefix{"batch_norm"};
  check_floating("batch_norm", x);
  check<ShapeError>(x.dim() >= 2, "{}the input must be [batch, channels, ...], got {}", prefix, x.shape());
  const Shape channels{x.shape()[1]};
  check<ConfigError>(running_mean.defined() == running_var.defined(),
                     "{}running_mean and running_var go together: give both or none", prefix);
  check<ConfigError>(training || running_mean.defined(),
                     "{}without training, running_mean and running_var must be given", prefix);
  const AroundDim around(x.shape(), 1);
  check<ValueError>(!training || around.outer * around.inner != 1,
                    "{}training needs more than one value per channel, got the input {}; use a larger batch, or "
                    "evaluation mode",
                    prefix, x.shape());
  for (const auto& [what, running] : {std::pair{"running_mean", &running_mean}, {"running_var", &running_var}}) {
    check_part("batch_norm", x, what, *running, channels);
    if (training && running->defined()) {
      check<AutogradError>(!running->requires_grad(), "{}{} is changed in place and must not require a gradient",
                           prefix, what);
      check<ShapeError>(running->is_contiguous(), "{}{} is changed in place and must be contiguous", prefix, what);
    }
  }
  return channels;
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps) {
  const Shape channels = check_channels(x, running_mean, running_var, training);
  check_part("batch_norm", x, "weight", weight, channels);
  check_part("batch_norm", x, "bias", bias, channels);
  const View in = detail::contiguous(x.raw());
  const View scale = dense(weight);
  const View shift = dense(bias);
  const View mean = dense(running_mean);
  const View variance = dense(running_var);
  const AroundDim around(in.sizes, 1);
  View out = detail::empty_view(in.sizes, in.dtype, in.device());
  const View statistics = statistics_view(around.size, in.device());
  kernels::launch(detail::context_of(in), kernels::BatchNorm{.dtype = in.dtype,
                                                             .training = training,
                                                             .outer = around.outer,
                                                             .channels = around.size,
                                                             .inner = around.inner,
                                                             .eps = eps,
                                                             .momentum = momentum,
                                                             .in = in.data(),
                                                             .weight = data_of(scale),
                                                             .bias = data_of(shift),
                                                             .running_mean = data_of(mean),
                                                             .running_var = data_of(variance),
                                                             .statistics = statistics_of(statistics),
                                                             .out = out.data()});
  if (training && mean.defined()) {
    mean.storage->bump_version();
    variance.storage->bump_version();
  }
  return record("batch_norm", std::move(out), {&x, &weight, &bias}, [&] {
    return [saved = SavedNorm(x, in, weight, statistics, training), around, training](Gradients& g) {
      kernels::BatchNormGrad kernel{};
      kernel.training = training;
      kernel.outer = around.outer;
      kernel.channels = around.size;
      kernel.inner = around.inner;
      saved.launch(g, kernel);
    };
  });
}

}  // namespace tandem::inline v0

#include <tandem/nn/batch_norm.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::nn {

BatchNorm1d::BatchNorm1d(std::int64_t num_features, const BatchNormOptions& options)
    : num_features_(num_features), eps_(options.eps), momentum_(options.momentum) {
  check<ConfigError>(num_features >= 0, "BatchNorm1d: num_features must not be negative, got {}", num_features);
  describe(fmt::format("{}, eps={}, momentum={}, affine={}, track_running_stats={}", num_features, options.eps,
                       options.momentum ? fmt::format("{}", *options.momentum) : "none", options.affine,
                       options.track_running_stats));
  const TensorOptions made{.dtype = options.dtype, .device = options.device};
  if (options.affine) {
    weight = parameter("weight", ones({num_features}, made));
    bias = parameter("bias", zeros({num_features}, made));
  }
  if (options.track_running_stats) {
    running_mean = buffer("running_mean", zeros({num_features}, made));
    running_var = buffer("running_var", ones({num_features}, made));
    num_batches_tracked = buffer("num_batches_tracked", zeros({}, {.dtype = DType::i64, .device = options.device}));
  }
}

Tensor BatchNorm1d::forward(const Tensor& x) const {
  check_registered();
  const core::MessagePrefix prefix{""};
  check<ShapeError>(x.dim() == 2 || x.dim() == 3,
                    "{}the input must be [batch, features] or [batch, features, length], got {}", prefix, x.shape());
  check<ShapeError>(x.size(1) == num_features_, "{}input {} has {} features, layer expects {}", prefix, x.shape(),
                    x.size(1), num_features_);
  const bool tracks = running_mean.defined();
  if (!is_training() || !tracks) {
    return batch_norm(x, running_mean, running_var, weight, bias, !tracks, 0, eps_);
  }
  const double momentum =
      momentum_ ? *momentum_ : 1 / static_cast<double>(num_batches_tracked.item<std::int64_t>() + 1);
  Tensor out = batch_norm(x, running_mean, running_var, weight, bias, true, momentum, eps_);
  const NoGradGuard no_grad;
  Tensor(num_batches_tracked).add_(1);
  return out;
}

}  // namespace tandem::inline v0::nn

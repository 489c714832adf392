#include <tandem/nn/batch_norm.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::nn {

template <class Derived>
BatchNorm<Derived>::BatchNorm(const char* name, std::int64_t num_features, const BatchNormOptions& options,
                              const char* input, int least, int most)
    : num_features_(num_features),
      eps_(options.eps),
      momentum_(options.momentum),
      input_(input),
      least_dims_(least),
      most_dims_(most) {
  check<ConfigError>(num_features >= 0, "{}: num_features must not be negative, got {}", name, num_features);
  this->describe(fmt::format("{}, eps={}, momentum={}, affine={}, track_running_stats={}", num_features, options.eps,
                             options.momentum ? fmt::format("{}", *options.momentum) : "none", options.affine,
                             options.track_running_stats));
  const TensorOptions made{.dtype = options.dtype, .device = options.device};
  if (options.affine) {
    weight = this->parameter("weight", ones({num_features}, made));
    bias = this->parameter("bias", zeros({num_features}, made));
  }
  if (options.track_running_stats) {
    running_mean = this->buffer("running_mean", zeros({num_features}, made));
    running_var = this->buffer("running_var", ones({num_features}, made));
    num_batches_tracked =
        this->buffer("num_batches_tracked", zeros({}, {.dtype = DType::i64, .device = options.device}));
  }
}

template <class Derived>
Tensor BatchNorm<Derived>::forward(const Tensor& x) const {
  this->check_registered();
  const core::MessagePrefix prefix{""};
  check<ShapeError>(x.dim() >= least_dims_ && x.dim() <= most_dims_, "{}the input must be {}, got {}", prefix, input_,
                    x.shape());
  check<ShapeError>(x.size(1) == num_features_, "{}input {} has {} features, layer expects {}", prefix, x.shape(),
                    x.size(1), num_features_);
  const bool tracks = running_mean.defined();
  if (!this->is_training() || !tracks) {
    return batch_norm(x, running_mean, running_var, weight, bias, !tracks, 0, eps_);
  }
  const double momentum =
      momentum_ ? *momentum_ : 1 / static_cast<double>(num_batches_tracked.item<std::int64_t>() + 1);
  Tensor out = batch_norm(x, running_mean, running_var, weight, bias, true, momentum, eps_);
  const NoGradGuard no_grad;
  Tensor(num_batches_tracked).add_(1);
  return out;
}

template class BatchNorm<BatchNorm1d>;
template class BatchNorm<BatchNorm2d>;

}  // namespace tandem::inline v0::nn

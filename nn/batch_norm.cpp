#include <tandem/nn/batch_norm.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/module_state.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/frame.h>

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
  this->live_state().batch_norm = std::make_unique<detail::BatchNormState>(detail::BatchNormState{.eps = eps_});
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
  check<ShapeError>(x.size(1) == num_features_, "{}input {} has {} features, layer expects {} [TDM-E101]", prefix,
                    x.shape(), x.size(1), num_features_);
  const bool tracks = running_mean.defined();
  if (!this->is_training() && tracks) {
    if (is_folded(this->live_state())) {
      const int dims = this->live_state().batch_norm->folded_dims;
      check<ConfigError>(x.dim() == dims,
                         "{}the layer was folded into the one before it, for inputs of {} dimensions, and gets {}; "
                         "load a state dict from before fold_batch_norm()",
                         prefix, dims, x.shape());
      return x;
    }
    return batch_norm(x, running_mean, running_var, weight, bias, false, 0, eps_);
  }
  detail::BatchNormState& state = *this->live_state().batch_norm;
  if (!state.folded.empty()) {
    state.folded.clear();
    tandem::detail::note_step_change();  // steps were captured without this layer
  }
  autograd::BatchNormTraining training{.momentum = momentum_.value_or(0)};
  if (this->is_training()) {  // without running statistics, evaluation gets here, too
    training.exchange = state.exchange;
  }
  const core::Frame* frame = core::thread_state().frame;
  check<ConfigError>(training.exchange == nullptr || frame == nullptr || frame->replica().count == 1,
                     "{}sync_batch_norm joins the batches of ranks, and DataParallel's replicas are none; use "
                     "DistributedDataParallel",
                     prefix);
  if (tracks && !momentum_) {
    training.batches = num_batches_tracked;
  }
  Tensor out = autograd::batch_norm(x, running_mean, running_var, weight, bias, eps_, training);
  if (tracks) {
    const NoGradGuard no_grad;
    Tensor(num_batches_tracked).add_(1);
  }
  return out;
}

void detail::set_batch_exchange(const ModuleRef& module, const std::shared_ptr<autograd::BatchExchange>& exchange) {
  for_each_module(state_of(module), [&](ModuleState& state) {
    if (state.batch_norm != nullptr) {
      state.batch_norm->exchange = exchange;
    }
  });
  tandem::detail::note_step_change();
}

bool detail::has_batch_exchange(const ModuleRef& module) {
  bool found = false;
  for_each_module(state_of(module), [&](const ModuleState& state) {
    found = found || (state.batch_norm != nullptr && state.batch_norm->exchange != nullptr);
  });
  return found;
}

template class BatchNorm<BatchNorm1d>;
template class BatchNorm<BatchNorm2d>;

}  // namespace tandem::inline v0::nn

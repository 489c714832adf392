#include <tandem/autograd/ops/loss.h>
#include <tandem/kernels/nll_loss.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

constexpr LossNames kNllLoss{"nll_loss", "log_probs"};
constexpr const char* kNllAdvice = "it takes log_softmax(), or use cross_entropy on the logits";

}  // namespace

Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const NLLLossOptions& options) {
  if (raises({&log_probs})) [[unlikely]] {
    warn_if_result_of("softmax", kNllLoss, log_probs, kNllAdvice);
    return nll_loss(raised(log_probs), target, options);
  }
  check_floating(kNllLoss.op, log_probs);
  check_index_target(kNllLoss, log_probs, target);
  warn_if_result_of("softmax", kNllLoss, log_probs, kNllAdvice);
  const View weight = class_weight(kNllLoss, log_probs, options.weight);
  const View in = detail::contiguous(log_probs.raw());
  const View indices = detail::contiguous(target.raw());
  const AroundDim around(in.sizes, class_dim(in.sizes));
  const core::BadValue bad = bad_target(kNllLoss, indices.sizes, around.size, options.ignore_index);
  check_indices(indices, bad);
  const bool per_row = options.reduction == Reduction::none;
  View loss = detail::empty_view(per_row ? target.shape() : Shape{}, in.dtype, in.device());
  const View scale = detail::empty_view({}, in.dtype == DType::f64 ? DType::f64 : DType::f32, in.device());
  kernels::launch(detail::context_of(in),
                  kernels::NegativeLogLikelihood{.dtype = in.dtype,
                                                 .loss_per_row = per_row,
                                                 .mean = options.reduction == Reduction::mean,
                                                 .outer = around.outer,
                                                 .classes = around.size,
                                                 .inner = around.inner,
                                                 .log_probs = in.data(),
                                                 .indices = static_cast<const std::int64_t*>(indices.data()),
                                                 .weight = data_of(weight),
                                                 .ignore_index = options.ignore_index,
                                                 .scale = scale.data(),
                                                 .loss = loss.data(),
                                                 .bad = bad});
  return record("nll_loss", std::move(loss), {&log_probs}, [&] {
    return [indices = Saved(indices), weight = SavedWeight(weight), scale = Saved(scale), around, per_row,
            ignore_index = options.ignore_index](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        // The loss is linear: -scale * grad in the chosen places.
        const Tensor at = g.constant(indices);
        const Tensor chosen = weighted_classes(at, around.size, ignore_index, weight.constant(g), g.output().dtype());
        const Tensor rows = chosen.reshape({around.outer, around.inner, around.size}).transpose(1, 2);
        const Tensor grad = per_row ? g.output().reshape({around.outer, 1, around.inner}) : g.output();
        g.give(0, (rows * grad * -g.constant(scale).to(grad.dtype())).reshape(g.input_sizes(0)));
      } else {
        const View grad = detail::contiguous(g.output());
        const Destination to = g.destination(0);
        kernels::launch(
            detail::context_of(grad),
            kernels::NegativeLogLikelihoodGrad{.dtype = grad.dtype,
                                               .loss_per_row = per_row,
                                               .accumulate = to.accumulate,
                                               .outer = around.outer,
                                               .classes = around.size,
                                               .inner = around.inner,
                                               .indices = static_cast<const std::int64_t*>(indices.get(g).data()),
                                               .weight = weight.data(g),
                                               .ignore_index = ignore_index,
                                               .scale = scale.get(g).data(),
                                               .grad = grad.data(),
                                               .log_probs_grad = to.view.data()});
      }
    };
  });
}

}  // namespace tandem::inline v0

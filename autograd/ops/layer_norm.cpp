#include <tandem/autograd/ops/norm.h>
#include <tandem/kernels/layer_norm.h>

namespace tandem::inline v0 {

using namespace autograd;

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  check_floating("layer_norm", x);
  const int leading = x.dim() - normalized_shape.ndim();
  std::int64_t rows = 1;
  bool fits = normalized_shape.ndim() > 0 && leading >= 0;
  for (int dim = 0; fits && dim < x.dim(); ++dim) {
    rows *= dim < leading ? x.shape()[dim] : 1;
    fits = dim < leading || x.shape()[dim] == normalized_shape[dim - leading];
  }
  if (!fits) [[unlikely]] {
    fail<ShapeError>("{}the last dimensions of the input {} must be the normalized_shape {}",
                     core::MessagePrefix{"layer_norm"}, x.shape(), normalized_shape);
  }
  check_part("layer_norm", x, "weight", weight, normalized_shape);
  check_part("layer_norm", x, "bias", bias, normalized_shape);
  const View in = detail::contiguous(x.raw());
  const View scale = dense(weight);
  const View shift = dense(bias);
  const std::int64_t size = normalized_shape.numel();
  View out = detail::empty_view(in.sizes, in.dtype, in.device());
  const View statistics = statistics_view(rows, in.device());
  kernels::launch(detail::context_of(in), kernels::LayerNorm{.dtype = in.dtype,
                                                             .rows = rows,
                                                             .size = size,
                                                             .eps = eps,
                                                             .in = in.data(),
                                                             .weight = data_of(scale),
                                                             .bias = data_of(shift),
                                                             .statistics = statistics_of(statistics),
                                                             .out = out.data()});
  return record("layer_norm", std::move(out), {&x, &weight, &bias}, [&] {
    const bool keeps_x = x.requires_grad() || needs_gradient(weight);
    const bool keeps_weight = x.requires_grad() && weight.defined();
    return [in = keeps_x ? Saved(in) : Saved(), weight = keeps_weight ? Saved(weight) : Saved(),
            statistics = Saved(statistics), rows, size, keeps_x, keeps_weight](Gradients& g) {
      const View factor = keeps_weight ? detail::contiguous(weight.get(g)) : View();
      launch_gradients(g, kernels::LayerNormGrad{.dtype = g.output().dtype,
                                                 .rows = rows,
                                                 .size = size,
                                                 .grad = nullptr,
                                                 .in = keeps_x ? in.get(g).data() : nullptr,
                                                 .weight = data_of(factor),
                                                 .statistics = statistics_of(statistics.get(g)),
                                                 .in_grad = nullptr,
                                                 .weight_grad = nullptr,
                                                 .bias_grad = nullptr});
    };
  });
}

}  // namespace tandem::inline v0

#include <tandem/autograd/ops/norm.h>
#include <tandem/kernels/layer_norm.h>

namespace tandem::inline v0 {

using namespace autograd;

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  if (raises({&x, &weight, &bias})) [[unlikely]] {
    return layer_norm(raised(x), normalized_shape, raised(weight), raised(bias), eps);
  }
  check_floating("layer_norm", x);
  const int leading = x.dim() - normalized_shape.ndim();
  std::int64_t rows = 1;
  bool fits = normalized_shape.ndim() > 0 && leading >= 0;
  for (int dim = 0; fits && dim < x.dim(); ++dim) {
    rows *= dim < leading ? x.shape()[dim] : 1;
    fits = dim < leading || x.shape()[dim] == normalized_shape[dim - leading];
  }
  if (!fits) [[unlikely]] {
    fail<ShapeError>("{}the last dimensions of the input {} must be the normalized_shape {} [TDM-E101]",
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
    return BySample{[saved = SavedNorm(x, in, weight, statistics), rows, size, eps, normalized_shape](auto& g) {
      const auto normalise = [&](const Tensor& whole) {
        const Tensor row = whole.reshape({rows, size});
        const Tensor apart = row - row.mean({1}, true);
        return (apart * ((apart * apart).mean({1}, true) + eps).rsqrt()).reshape(whole.shape());
      };
      if constexpr (is_graph<decltype(g)>) {
        saved.give(g, normalized_shape, normalise);
      } else if constexpr (is_samples<decltype(g)>) {
        saved.add_squares(g, size, normalise);
      } else {
        kernels::LayerNormGrad kernel{};
        kernel.rows = rows;
        kernel.size = size;
        saved.launch(g, kernel);
      }
    }};
  });
}

}  // namespace tandem::inline v0

#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/norm.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// What goes with the input x (a weight, a running mean, ...), if given: on its device, of its type and of these sizes.
void check_part(const char* op, const Tensor& x, const char* what, const Tensor& part, const Shape& sizes) {
  if (!part.defined()) {
    return;
  }
  if (!(x.device() == part.device())) [[unlikely]] {
    fail<DeviceError>("{}input is on {}, {} on {}. Move the input: x.to(\"{}\")", core::MessagePrefix{op}, x.device(),
                      what, part.device(), part.device());
  }
  if (x.dtype() != part.dtype()) [[unlikely]] {
    fail<DTypeError>("{}input is {}, {} {}. Convert the input: x.to(DType::{})", core::MessagePrefix{op}, x.dtype(),
                     what, part.dtype(), part.dtype());
  }
  if (!(part.shape() == sizes)) [[unlikely]] {
    fail<ShapeError>("{}{} {} does not fit the input {}: expected {}", core::MessagePrefix{op}, what, part.shape(),
                     x.shape(), sizes);
  }
}

bool needs_gradient(const Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

View dense(const Tensor& tensor) { return tensor.defined() ? detail::contiguous(tensor.raw()) : View(); }

void* data_of(const View& view) { return view.defined() ? view.data() : nullptr; }

View statistics_view(std::int64_t count, Device device) {
  static_assert(sizeof(kernels::NormStatistics) == 2 * sizeof(double));
  return detail::empty_view({count, 2}, DType::f64, device);
}

kernels::NormStatistics* statistics_of(const View& view) { return static_cast<kernels::NormStatistics*>(view.data()); }

// Runs a kernel for the gradients of input (0), weight (1) and bias (2) that are asked for.
template <class Kernel>
void launch_gradients(Gradients& g, Kernel kernel) {
  const View grad = detail::contiguous(g.output());
  kernel.grad = grad.data();
  const auto ask_for = [&](std::uint32_t i, void*& data, Accumulate& accumulate) {
    if (g.wants(i)) {
      const Destination to = g.destination(i);
      data = to.view.data();
      accumulate = to.accumulate;
    }
  };
  ask_for(0, kernel.in_grad, kernel.accumulate_in);
  ask_for(1, kernel.weight_grad, kernel.accumulate_weight);
  ask_for(2, kernel.bias_grad, kernel.accumulate_bias);
  kernels::launch(detail::context_of(grad), kernel);
}

}  // namespace

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

namespace {

// Sizes of what the channels of x have.
Shape check_channels(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, bool training) {
  const core::MessagePrefix prefix{"batch_norm"};
  check_floating("batch_norm", x);
  if (x.dim() < 2) [[unlikely]] {
    fail<ShapeError>("{}the input must be [batch, channels, ...], got {}", prefix, x.shape());
  }
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
    const bool keeps_x = (training && x.requires_grad()) || needs_gradient(weight);
    const bool keeps_weight = x.requires_grad() && weight.defined();
    return [in = keeps_x ? Saved(in) : Saved(), weight = keeps_weight ? Saved(weight) : Saved(),
            statistics = Saved(statistics), around, training, keeps_x, keeps_weight](Gradients& g) {
      const View factor = keeps_weight ? detail::contiguous(weight.get(g)) : View();
      launch_gradients(g, kernels::BatchNormGrad{.dtype = g.output().dtype,
                                                 .training = training,
                                                 .outer = around.outer,
                                                 .channels = around.size,
                                                 .inner = around.inner,
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

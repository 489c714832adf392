#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/softmax_loss.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// What the sum over `count` losses is multiplied with. The mean of nothing is NaN, as in PyTorch.
double scale_of(Reduction reduction, std::int64_t count) {
  return reduction == Reduction::mean ? (count == 0 ? __builtin_nan("") : 1.0 / static_cast<double>(count)) : 1.0;
}

void check_cross_entropy(const Tensor& logits, const Tensor& target) {
  check_floating("cross_entropy", logits);
  const Shape& l = logits.shape();
  const Shape& t = target.shape();
  if (target.dtype() != DType::i64) [[unlikely]] {
    fail<DTypeError>("{}targets must be class indices of type i64, got {}; convert with .to(DType::i64)",
                     core::MessagePrefix{"cross_entropy"}, target.dtype());
  }
  const bool fits = (l.ndim() == 2 && t.ndim() == 1 && l[0] == t[0]) || (l.ndim() == 1 && t.ndim() == 0);
  if (!fits || l.back() < 1) [[unlikely]] {
    fail<ShapeError>("{}expected logits [rows, classes] and targets [rows], got {} and {}",
                     core::MessagePrefix{"cross_entropy"}, l, t);
  }
  if (!(logits.device() == target.device())) [[unlikely]] {
    fail<DeviceError>("{}logits are on {}, targets on {}. Move the targets: y.to(\"{}\")",
                      core::MessagePrefix{"cross_entropy"}, logits.device(), target.device(), logits.device());
  }
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction) {
  check_cross_entropy(logits, target);
  const View in = detail::contiguous(logits.raw());
  const View classes_of = detail::contiguous(target.raw());
  const auto* targets = static_cast<const std::int64_t*>(classes_of.data());
  const std::int64_t classes = in.sizes.back();
  const std::int64_t rows = classes_of.numel();
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] < 0 || targets[row] >= classes) [[unlikely]] {
      fail<ValueError>("{}target {} in row {} is not a class index: expected 0 to {}",
                       core::MessagePrefix{"cross_entropy"}, targets[row], row, classes - 1);
    }
  }
  const bool per_row = reduction == Reduction::none;
  const double scale = scale_of(reduction, rows);
  View loss = detail::empty_view(per_row ? target.shape() : Shape{}, in.dtype, in.device());
  View normalizer = detail::empty_view({rows, 2}, in.dtype == DType::f64 ? DType::f64 : DType::f32, in.device());
  kernels::launch(detail::context_of(in), kernels::CrossEntropy{.dtype = in.dtype,
                                                                .loss_per_row = per_row,
                                                                .scale = scale,
                                                                .rows = rows,
                                                                .classes = classes,
                                                                .logits = in.data(),
                                                                .targets = targets,
                                                                .normalizer = normalizer.data(),
                                                                .loss = loss.data()});
  return record("cross_entropy", std::move(loss), {&logits}, [&] {
    return [logits = Saved(in), target = Saved(classes_of), normalizer = Saved(normalizer), per_row, scale, rows,
            classes](Gradients& g) {
      const View grad = detail::contiguous(g.output());
      const View& z = logits.get(g);
      const Destination to = g.destination(0);
      kernels::launch(detail::context_of(z),
                      kernels::CrossEntropyGrad{.dtype = z.dtype,
                                                .loss_per_row = per_row,
                                                .accumulate = to.accumulate,
                                                .scale = scale,
                                                .rows = rows,
                                                .classes = classes,
                                                .logits = z.data(),
                                                .targets = static_cast<const std::int64_t*>(target.get(g).data()),
                                                .normalizer = normalizer.get(g).data(),
                                                .grad = grad.data(),
                                                .logits_grad = to.view.data()});
    };
  });
}

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  check_floating("mse_loss", input);
  check_same_kind("mse_loss", input, target);
  if (!(input.shape() == target.shape())) [[unlikely]] {
    fail<ShapeError>("{}input {} and target {} differ; reshape one (y.reshape({{-1, 1}}) for a column)",
                     core::MessagePrefix{"mse_loss"}, input.shape(), target.shape());
  }
  const View a = detail::contiguous(input.raw());
  const View b = detail::contiguous(target.raw());
  const bool per_element = reduction == Reduction::none;
  const std::int64_t count = a.numel();
  const double scale = scale_of(reduction, count);
  View loss = detail::empty_view(per_element ? a.sizes : Shape{}, a.dtype, a.device());
  kernels::launch(detail::context_of(a), kernels::SquaredError{.dtype = a.dtype,
                                                               .loss_per_element = per_element,
                                                               .scale = scale,
                                                               .count = count,
                                                               .a = a.data(),
                                                               .b = b.data(),
                                                               .loss = loss.data()});
  return record("mse_loss", std::move(loss), {&input, &target}, [&] {
    return [a = Saved(a), b = Saved(b), per_element, scale, count](Gradients& g) {
      const View grad = detail::contiguous(g.output());
      for (const std::uint32_t i : {0u, 1u}) {
        if (!g.wants(i)) {
          continue;
        }
        const View& self = (i == 0 ? a : b).get(g);
        const View& other = (i == 0 ? b : a).get(g);
        const Destination to = g.destination(i);
        kernels::launch(detail::context_of(self), kernels::SquaredErrorGrad{.dtype = self.dtype,
                                                                            .loss_per_element = per_element,
                                                                            .accumulate = to.accumulate,
                                                                            .scale = scale,
                                                                            .count = count,
                                                                            .a = self.data(),
                                                                            .b = other.data(),
                                                                            .grad = grad.data(),
                                                                            .a_grad = to.view.data()});
      }
    };
  });
}

}  // namespace tandem::inline v0

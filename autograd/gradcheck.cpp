#include <tandem/autograd/gradcheck.h>

#include <cmath>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::autograd {

namespace {

// The element at a row-major position, for any strides and device.
detail::View element_at(const detail::View& view, std::int64_t position) {
  detail::View element = view;
  for (int dim = view.sizes.ndim() - 1; dim >= 0; --dim) {
    element = detail::select(element, dim, position % view.sizes[dim]);
    position /= view.sizes[dim];
  }
  return element;
}

}  // namespace

void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& fn, const std::vector<Tensor>& inputs,
               const GradcheckOptions& options) {
  for (const Tensor& input : inputs) {
    check<DTypeError>(!input.requires_grad() || input.dtype() == DType::f64,
                      "gradcheck: inputs must be f64 (differences in f32 say little), got {}", input.dtype());
    input.zero_grad();
  }
  Tensor weights;  // reduces a result of any shape to one scalar
  const auto scalar = [&] {
    const Tensor out = fn(inputs);
    if (!weights.defined()) {
      Generator fixed(20);
      const GeneratorScope scope(fixed);
      weights = rand(out.shape(), {.dtype = out.dtype(), .device = out.device()}) + 0.5;
    }
    return (out * weights).sum();
  };
  scalar().backward();

  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!inputs[k].requires_grad()) {
      continue;
    }
    const Tensor grad = inputs[k].grad();
    const std::vector<double> analytic = grad.defined()
                                             ? grad.to_vector<double>()
                                             : std::vector<double>(static_cast<std::size_t>(inputs[k].numel()), 0.0);
    const NoGradGuard no_grad;
    const std::vector<double> values = inputs[k].to_vector<double>();
    for (std::int64_t position = 0; position < inputs[k].numel(); ++position) {
      const detail::View element = element_at(inputs[k].raw(), position);
      const double original = values[static_cast<std::size_t>(position)];
      detail::fill(element, original + options.eps);
      const double above = scalar().item();
      detail::fill(element, original - options.eps);
      const double below = scalar().item();
      detail::fill(element, original);
      const double numeric = (above - below) / (2 * options.eps);
      const double got = analytic[static_cast<std::size_t>(position)];
      check<AutogradError>(std::abs(got - numeric) <= options.atol + options.rtol * std::abs(numeric),
                           "gradcheck: input {} {}, element {}: backward gives {}, differences give {}", k,
                           inputs[k].shape(), position, got, numeric);
    }
  }
}

}  // namespace tandem::inline v0::autograd

#include <tandem/autograd/gradcheck.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include <tandem/autograd/grad.h>
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
  check<AutogradError>(std::ranges::any_of(inputs, &Tensor::requires_grad),
                       "gradcheck: none of the {} inputs requires a gradient; call requires_grad_() on those to check",
                       inputs.size());
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

void gradgradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& fn, const std::vector<Tensor>& inputs,
                   const GradcheckOptions& options) {
  const Tensor out = fn(inputs);
  Generator fixed(21);
  const GeneratorScope scope(fixed);
  const Tensor seed = (rand(out.shape(), {.dtype = out.dtype(), .device = out.device()}) + 0.5).requires_grad_();
  std::vector<Tensor> wanted;
  std::vector<Tensor> weights;
  for (const Tensor& input : inputs) {
    if (input.requires_grad()) {
      wanted.push_back(input);
      weights.push_back(rand(input.shape(), {.dtype = input.dtype(), .device = input.device()}) + 0.5);
    }
  }
  const auto gradients = [&](const Tensor& result, const Tensor& gradient, bool create_graph) {
    return grad(std::span(&result, 1), wanted,
                {.grad_outputs = {gradient}, .create_graph = create_graph, .retain_graph = true, .allow_unused = true});
  };
  const std::vector<Tensor> by_kernels = gradients(out, seed.detach(), false);
  const std::vector<Tensor> by_graph = gradients(out, seed.detach(), true);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto list = [](const Tensor& gradient) {
      return gradient.defined() ? gradient.detach().to_vector<double>() : std::vector<double>();
    };
    const std::vector<double> expected = list(by_kernels[i]);
    const std::vector<double> got = list(by_graph[i]);
    check<AutogradError>(got.size() == expected.size(),
                         "gradgradcheck: input {}: {} elements, and {} with create_graph", i, expected.size(),
                         got.size());
    for (std::size_t k = 0; k < got.size(); ++k) {
      check<AutogradError>(std::abs(got[k] - expected[k]) <= 1e-10 * (1 + std::abs(expected[k])),
                           "gradgradcheck: input {}, element {}: the gradient is {}, and {} with create_graph", i, k,
                           expected[k], got[k]);
    }
  }
  std::vector<Tensor> all = inputs;
  all.push_back(seed);
  gradcheck(
      [&](const std::vector<Tensor>& values) {
        const GradModeScope on(true);  // differences are taken without
        const std::vector<Tensor> first = gradients(fn({values.begin(), values.end() - 1}), values.back(), true);
        Tensor sum = values.back().sum() * 0;
        for (std::size_t i = 0; i < first.size(); ++i) {
          sum = first[i].defined() ? sum + (first[i] * weights[i]).sum() : sum;
        }
        return sum;
      },
      all, options);
}

}  // namespace tandem::inline v0::autograd

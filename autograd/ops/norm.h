#pragma once

#include <algorithm>
#include <initializer_list>

#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/norm_formulas.h>

// Internal: what layer_norm and batch_norm share.

namespace tandem::inline v0::autograd {

/// Checks an optional companion of the input x (a weight, a running mean, ...): on x's device, of x's type and of these
/// sizes.
inline void check_part(const char* op, const Tensor& x, const char* what, const Tensor& part, const Shape& sizes) {
  if (!part.defined()) {
    return;
  }
  check<DeviceError>(x.device() == part.device(), "{}input is on {}, {} on {}. Move the input: x.to(\"{}\") [TDM-E103]",
                     core::MessagePrefix{op}, x.device(), what, part.device(), part.device());
  check<DTypeError>(x.dtype() == part.dtype(), "{}input is {}, {} {}. Convert the input: x.to(DType::{}) [TDM-E102]",
                    core::MessagePrefix{op}, x.dtype(), what, part.dtype(), part.dtype());
  check<ShapeError>(part.shape() == sizes, "{}{} {} does not fit the input {}: expected {}", core::MessagePrefix{op},
                    what, part.shape(), x.shape(), sizes);
}

inline View statistics_view(std::int64_t count, Device device) {
  static_assert(sizeof(kernels::NormStatistics) == 2 * sizeof(double));
  return detail::empty_view({count, 2}, DType::f64, device);
}

inline kernels::NormStatistics* statistics_of(const View& view) {
  return static_cast<kernels::NormStatistics*>(view.data());
}

/// The values that a normalising layer keeps for its backward pass.
class SavedNorm {
 public:
  /// `in` is x in one piece, in the memory format of the gradients. `uses_in`: the gradient of x depends on x.
  SavedNorm(const Tensor& x, const View& in, const Tensor& weight, const View& statistics, bool uses_in = true)
      : statistics_(statistics), format_(in.memory_format()) {
    if ((uses_in && x.requires_grad()) || (weight.defined() && weight.requires_grad())) {
      in_.emplace(in);
    }
    if (weight.defined() && x.requires_grad()) {
      weight_.emplace(weight);
    }
  }

  /// Runs a kernel, which has the sizes already, for those gradients of input (0), weight (1) and bias (2) that are
  /// asked for and in `inputs`.
  template <class Kernel>
  void launch(Gradients& g, Kernel kernel, std::initializer_list<std::uint32_t> inputs = {0, 1, 2}) const {
    const View grad = detail::contiguous(g.output(), format_);
    const View weight = weight_ ? detail::contiguous(weight_->get(g)) : View();
    kernel.dtype = grad.dtype;
    kernel.grad = grad.data();
    kernel.in = in_ ? in_->get(g).data() : nullptr;
    kernel.weight = data_of(weight);
    kernel.statistics = statistics_of(statistics_.get(g));
    const auto ask_for = [&](std::uint32_t i, void*& data, Accumulate& accumulate) {
      if (g.wants(i) && std::find(inputs.begin(), inputs.end(), i) != inputs.end()) {
        const Destination to = g.destination(i, i == 0 ? format_ : MemoryFormat::contiguous);
        data = to.view.data();
        accumulate = to.accumulate;
      }
    };
    ask_for(0, kernel.in_grad, kernel.accumulate_in);
    ask_for(1, kernel.weight_grad, kernel.accumulate_weight);
    ask_for(2, kernel.bias_grad, kernel.accumulate_bias);
    kernels::launch(detail::context_of(grad), kernel);
  }

  /// The gradients as tensors. normalise(x) is the result without weight and bias; `sizes` are those with which these
  /// broadcast.
  template <class Normalise>
  void give(GradientGraph& g, const Shape& sizes, Normalise&& normalise) const {
    if (g.wants(0)) {
      const Tensor x = in_ ? g.alias(0, *in_) : g.alias(0, Saved(g.output()));  // a linear one needs no elements
      const Tensor y = normalise(x);
      g.give_by(weight_ ? y * g.input(1, *weight_).reshape(sizes) : y, {{0, x}});
    }
    if (g.wants(1)) {
      g.give(1, sum_to_size(g.output() * normalise(g.input(0, *in_)), sizes).reshape(g.input_sizes(1)));
    }
    if (g.wants(2)) {
      g.give(2, sum_to_size(g.output(), sizes).reshape(g.input_sizes(2)));
    }
  }
  /// Adds the squares for weight and bias, which have `size` elements for each row.
  template <class Normalise>
  void add_squares(SampleSquares& g, std::int64_t size, Normalise&& normalise) const {
    const auto in_rows = [&](const Tensor& whole) { return whole.reshape({g.batch(), -1, size}); };
    if (g.wants(1)) {
      g.add((in_rows(g.output()) * in_rows(normalise(g.constant(*in_)))).sum({1}));
    }
    if (g.wants(2)) {
      g.add(in_rows(g.output()).sum({1}));
    }
  }
  /// Means and inverse standard deviations, [count, 2].
  Tensor statistics(const GradientGraph& g) const { return g.constant(statistics_); }

 private:
  std::optional<Saved> in_;
  std::optional<Saved> weight_;
  Saved statistics_;
  MemoryFormat format_;
};

}  // namespace tandem::inline v0::autograd

#pragma once

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/flat.h>
#include <tandem/kernels/elementwise_loss_formulas.h>

// The arrays that element-wise losses and their gradients read. Every array is moved once, in 16-byte packs. In f32 a
// sum of losses moves 8 bytes per element; each loss or the gradient, if written, adds 4, and so does each weight.

namespace tandem::inline v0::kernels::gpu {

// Calls body.operator()<op, T>() for the kernel's op and dtype.
template <class Kernel, class Body>
void for_loss(const Kernel& kernel, Body&& body) {
  for_floating(kernel.dtype, [&]<class T>() {
    switch (kernel.op) {
      case LossOp::squared: return body.template operator()<LossOp::squared, T>();
      case LossOp::absolute: return body.template operator()<LossOp::absolute, T>();
      case LossOp::smooth_l1: return body.template operator()<LossOp::smooth_l1, T>();
      case LossOp::huber: return body.template operator()<LossOp::huber, T>();
      case LossOp::binary: return body.template operator()<LossOp::binary, T>();
      case LossOp::binary_logits: return body.template operator()<LossOp::binary_logits, T>();
    }
  });
}

/// Arrays 0 to 5 are result, input, target, gradient, weight and pos_weight. Losses of differences have no weights.
template <LossOp op, class T>
struct LossArrays : flat::Arrays<T, of_difference(op) ? 4 : 6, 0b1> {
  using Base = flat::Arrays<T, of_difference(op) ? 4 : 6, 0b1>;
  using C = ComputeType<T>;
  C threshold;

  template <class Kernel>
  LossArrays(const Kernel& kernel, void* result, const void* grad)
      : Base{{static_cast<T*>(result), flat::input<T>(kernel.input), flat::input<T>(kernel.target),
              flat::input<T>(grad)}},
        threshold(static_cast<C>(kernel.threshold)) {
    if constexpr (!of_difference(op)) {
      this->arrays[4] = flat::input<T>(kernel.weight);
      this->arrays[5] = flat::input<T>(kernel.pos_weight);
    }
  }

  __device__ C weight(const T (&x)[Base::kArrays]) const {
    if constexpr (!of_difference(op)) {
      return this->arrays[4] != nullptr ? C(x[4]) : C(1);
    }
    return C(1);
  }
  __device__ LossFactors<C> by(const T (&x)[Base::kArrays]) const {
    if constexpr (!of_difference(op)) {
      return {.threshold = threshold, .pos_weight = this->arrays[5] != nullptr ? C(x[5]) : C(1)};
    }
    return {.threshold = threshold};
  }
  __device__ C loss(const T (&x)[Base::kArrays]) const { return weight(x) * kernels::loss<op, C>(x[1], x[2], by(x)); }
  __device__ C input_grad(const T (&x)[Base::kArrays]) const {
    return weight(x) * loss_input_grad<op, C>(x[1], x[2], by(x));
  }
  __device__ C target_grad(const T (&x)[Base::kArrays]) const {
    return weight(x) * loss_target_grad<op, C>(x[1], x[2], by(x));
  }
};

}  // namespace tandem::inline v0::kernels::gpu

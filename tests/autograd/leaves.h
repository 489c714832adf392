#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/gradcheck.h>
#include <tandem/autograd/ops.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/factories.h>

namespace tandem::test {

/// f64 values, uniform on [low, high), identical in every run.
inline Tensor values(const Shape& sizes, double low = -1, double high = 1, std::uint64_t seed = 7) {
  Generator generator(seed);
  const GeneratorScope scope(generator);
  return rand(sizes, {.dtype = DType::f64}) * (high - low) + low;
}

/// values() as a leaf that requires a gradient.
inline Tensor leaf(const Shape& sizes, double low = -1, double high = 1, std::uint64_t seed = 7) {
  Tensor made = values(sizes, low, high, seed);
  return made.requires_grad_();
}

/// Values of both signs, at least 0.1 away from zero, for functions with a kink at zero.
inline Tensor leaf_with_signs(const Shape& sizes, std::uint64_t seed = 7) {
  Tensor made = values(sizes, 0.1, 1.1, seed);
  if (made.numel() > 0) {
    Tensor flat = made.reshape({-1});
    flat.slice(0, 0, flat.numel(), 2).mul_(-1);
  }
  return made.requires_grad_();
}

/// A leaf with the values of x, stored along the first dimension.
inline Tensor transposed_leaf(const Tensor& x) {
  const NoGradGuard no_grad;
  Tensor made = x.transpose(0, -1).contiguous().transpose(0, -1);
  return made.requires_grad_();
}

/// A leaf with the values of x, stored as every second element along the last dimension of a larger tensor.
inline Tensor stepped_leaf(const Tensor& x) {
  const NoGradGuard no_grad;
  Shape sizes = x.shape();
  sizes[sizes.ndim() - 1] = 2 * sizes.back() + 1;
  Tensor made = full(sizes, 99, {.dtype = x.dtype()}).slice(-1, 1, 2 * x.size(-1) + 1, 2);
  made.copy_(x);
  return made.requires_grad_();
}

/// A dense leaf with the values of x.
inline Tensor dense_leaf(const Tensor& x) {
  Tensor made = x.detach().clone();
  return made.requires_grad_();
}

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

/// Runs gradcheck, and gradgradcheck on a CPU, and reports their errors as failures of the current test.
inline void expect_gradient(const Function& fn, const std::vector<Tensor>& inputs,
                            const autograd::GradcheckOptions& options = {}) {
  try {
    autograd::gradcheck(fn, inputs, options);
    if (core::thread_state().device.type == DeviceType::cpu) {  // an emulated GPU would take minutes
      autograd::gradgradcheck(fn, inputs, options);
    }
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
}

/// A vector leaf of f64.
inline Tensor f64(const std::vector<double>& values) {
  return from_data(values, {static_cast<std::int64_t>(values.size())}, {.requires_grad = true});
}

inline Tensor indices(const std::vector<std::int64_t>& values, const Shape& sizes) { return from_data(values, sizes); }

inline constexpr Reduction kReductions[] = {Reduction::none, Reduction::mean, Reduction::sum};

}  // namespace tandem::test

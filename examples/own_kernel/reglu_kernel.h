#pragma once

#include <cstdint>

#include <tandem/kernels/launch.h>

/// max(a, 0), where NaN stays NaN, and its derivative. Both halves of the kernels compute by these formulas.
template <class T>
TANDEM_HD T relu_of(T a) {
  return a < T(0) ? T(0) : a;
}
template <class T>
TANDEM_HD T slope_of(T a) {
  return a > T(0) ? T(1) : T(0);
}

/// out = relu(a) * b, element by element, as one kernel instead of two. T is float or double.
template <class T>
struct ReGlu {
  static constexpr const char* kName = "reglu";
  std::int64_t count;
  const T* a;
  const T* b;
  T* out;
};
template <class T>
void run(tandem::kernels::OnCpu, tandem::kernels::Context& context, const ReGlu<T>& kernel);
template <class T>
void run(tandem::kernels::OnCuda, tandem::kernels::Context& context, const ReGlu<T>& kernel);

/// Both gradients of ReGlu, which reads a, b and the result's gradient once.
template <class T>
struct ReGluGrad {
  static constexpr const char* kName = "reglu_grad";
  std::int64_t count;
  const T* grad;
  const T* a;
  const T* b;
  T* a_grad;
  T* b_grad;
};
template <class T>
void run(tandem::kernels::OnCpu, tandem::kernels::Context& context, const ReGluGrad<T>& kernel);
template <class T>
void run(tandem::kernels::OnCuda, tandem::kernels::Context& context, const ReGluGrad<T>& kernel);

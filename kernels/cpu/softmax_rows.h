#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/per_isa.h>
#include <tandem/kernels/kernel.h>

// Rows of f32 for softmax and the losses over classes, on one thread; the caller divides the work.

namespace tandem::inline v0::kernels::cpu {

/// The numbers that turn a row of logits into log-probabilities: (x - highest) - log_sum.
template <class T>
struct Normalizer {
  T highest;
  T log_sum;  // log(sum(exp(x - highest)))
};

/// Writes a row of the gradient: out (+)= (exp(x - highest - log_sum) - [c == own]) * factor.
struct ClassGradientRow {
  const float* x;
  std::int64_t classes;
  Normalizer<float> by;
  std::int64_t own;  // negative if the row has no class
  float factor;
  float* out;
  Accumulate accumulate;
};

/// Rows of logits whose share is all in one class, with their gradient for a loss whose gradient is 1. The result is
/// that of class_gradient_row with `factor`, without taking the exponentials a second time.
struct ClassRows {
  const float* logits;
  const std::int64_t* indices;
  std::int64_t ignore_index;  // a row with this index has gradient 0, and its normalizer is unused
  std::int64_t rows, classes;
  Normalizer<float>* normalizer;
  float factor;
  float* gradient;
};

/// Writes the gradient of a softmax along `size` elements that are `stride` apart, for `columns` neighbours.
struct SoftmaxGradColumns {
  const float* grad;
  const float* y;
  float* out;
  std::int64_t size, stride, columns;
  bool log;
  Accumulate accumulate;
};

// softmax_columns takes the softmax along `size` elements that are `stride` apart, for `columns` neighbours.
TANDEM_FOR_EACH_ISA(void normalize_rows(const float* logits, std::int64_t rows, std::int64_t classes,
                                        Normalizer<float>* normalizer);
                    void normalize_with_gradient(const ClassRows& rows);
                    void class_gradient_row(const ClassGradientRow& row);
                    void softmax_row(const float* in, float* out, std::int64_t size, bool log);
                    void softmax_grad_row(const float* grad, const float* y, float* out, std::int64_t size, bool log,
                                          Accumulate accumulate);
                    void softmax_grad_columns(const SoftmaxGradColumns& of);
                    void softmax_columns(const float* in, float* out, std::int64_t size, std::int64_t stride,
                                         std::int64_t columns, bool log);)

}  // namespace tandem::inline v0::kernels::cpu

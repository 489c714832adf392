#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/per_isa.h>
#include <tandem/kernels/launch.h>

// Rows of f32 that softmax and the losses over classes are made of. One thread: who calls cuts the work.

namespace tandem::inline v0::kernels::cpu {

/// What turns a row of logits into log-probabilities: (x - highest) - log_sum.
template <class T>
struct Normalizer {
  T highest;
  T log_sum;  // of exp(x - highest)
};

/// A row of the gradient: out (+)= (exp(x - highest - log_sum) - [c == own]) * factor.
struct ClassGradientRow {
  const float* x;
  std::int64_t classes;
  Normalizer<float> by;
  std::int64_t own;  // none of the classes, if it is negative
  float factor;
  float* out;
  Accumulate accumulate;
};

/// Rows of logits whose share is all in one class, with the gradient that they get when the loss itself gets 1: what
/// class_gradient_row gives with `factor`, but without taking the exponentials a second time.
struct ClassRows {
  const float* logits;
  const std::int64_t* indices;
  std::int64_t ignore_index;  // such a row's gradient is 0, its normalizer of no use
  std::int64_t rows, classes;
  Normalizer<float>* normalizer;
  float factor;
  float* gradient;
};

// softmax_columns: softmax along `size` elements that are `stride` apart, of `columns` neighbours.
TANDEM_FOR_EACH_ISA(void normalize_rows(const float* logits, std::int64_t rows, std::int64_t classes,
                                        Normalizer<float>* normalizer);
                    void normalize_with_gradient(const ClassRows& rows);
                    void class_gradient_row(const ClassGradientRow& row);
                    void softmax_row(const float* in, float* out, std::int64_t size, bool log);
                    void softmax_grad_row(const float* grad, const float* y, float* out, std::int64_t size, bool log,
                                          Accumulate accumulate);
                    void softmax_columns(const float* in, float* out, std::int64_t size, std::int64_t stride,
                                         std::int64_t columns, bool log);)

}  // namespace tandem::inline v0::kernels::cpu

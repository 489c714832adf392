#pragma once

#include <cstdint>

// The loops of the floor, compiled for each instruction set like the engine's kernels, but with -ffast-math: their
// results need not be reproducible to the bit. All matrices are dense and row-major.

namespace bench {

struct FloorLoops {
  // Products that are too small for blocking; w is [out, in].
  void (*forward)(const float* x, const float* w, const float* b, float* y, long batch, long in, long out, bool relu);
  void (*weight_grad)(const float* dy, const float* x, float* dw, long batch, long in, long out);
  void (*input_grad)(const float* dy, const float* w, float* dx, long batch, long in, long out);

  /// out[j] = sum over rows of m[row, j], for j in [begin, end).
  void (*column_sums)(const float* m, float* out, long rows, long columns, long begin, long end);
  /// Sets dx[i] = 0 where y[i], the output of a ReLU, is 0; i in [begin, end).
  void (*relu_mask)(float* dx, const float* y, long begin, long end);

  /// Returns the sum of the rows' losses and writes the gradients of their mean over `batch`; rows in [begin, end).
  double (*cross_entropy)(const float* z, const std::int64_t* y, float* dz, long batch, long classes, long begin,
                          long end);
  /// Returns the mean of the squares of `count` differences and writes its gradient.
  double (*mse)(const float* z, const float* y, float* dz, long count);

  // Optimisers for elements in [begin, end).
  void (*sgd)(float* w, const float* g, float lr, long begin, long end);
  void (*momentum)(float* w, const float* g, float* v, float lr, float momentum, long begin, long end);
  /// `rate` is lr / (1 - beta1^t), `scale` 1 / sqrt(1 - beta2^t).
  void (*adam)(float* w, const float* g, float* m, float* v, float rate, float scale, long begin, long end);
};

/// The loops for the instruction set in use.
const FloorLoops& floor_loops();

}  // namespace bench

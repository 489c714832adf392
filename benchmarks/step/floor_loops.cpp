// Compiled once per instruction set. Do not call functions of headers here: the linker might keep the copy of an
// instruction set that the machine does not have.
#include "step/floor_loops.h"

namespace bench::TANDEM_ISA {

namespace {

void forward(const float* __restrict x, const float* __restrict w, const float* __restrict b, float* __restrict y,
             long batch, long in, long out, bool relu) {
  for (long row = 0; row < batch; ++row) {
    for (long j = 0; j < out; ++j) {
      float sum = b[j];
      for (long i = 0; i < in; ++i) {
        sum += x[row * in + i] * w[j * in + i];
      }
      y[row * out + j] = relu && sum < 0 ? 0 : sum;
    }
  }
}

void weight_grad(const float* __restrict dy, const float* __restrict x, float* __restrict dw, long batch, long in,
                 long out) {
  for (long j = 0; j < out; ++j) {
    float* to = dw + j * in;
    for (long i = 0; i < in; ++i) {
      to[i] = 0;
    }
    for (long row = 0; row < batch; ++row) {
      const float factor = dy[row * out + j];
      for (long i = 0; i < in; ++i) {
        to[i] += factor * x[row * in + i];
      }
    }
  }
}

void input_grad(const float* __restrict dy, const float* __restrict w, float* __restrict dx, long batch, long in,
                long out) {
  for (long row = 0; row < batch; ++row) {
    float* to = dx + row * in;
    for (long i = 0; i < in; ++i) {
      to[i] = 0;
    }
    for (long j = 0; j < out; ++j) {
      const float factor = dy[row * out + j];
      for (long i = 0; i < in; ++i) {
        to[i] += factor * w[j * in + i];
      }
    }
  }
}

void column_sums(const float* __restrict m, float* __restrict out, long rows, long columns, long begin, long end) {
  constexpr long kWidth = 64;  // fits into registers
  for (long first = begin; first < end; first += kWidth) {
    const long width = end - first < kWidth ? end - first : kWidth;
    if (width == kWidth) {
      float sums[kWidth] = {};
      for (long row = 0; row < rows; ++row) {
        for (long j = 0; j < kWidth; ++j) {
          sums[j] += m[row * columns + first + j];
        }
      }
      for (long j = 0; j < kWidth; ++j) {
        out[first + j] = sums[j];
      }
    } else {
      for (long j = 0; j < width; ++j) {
        out[first + j] = 0;
      }
      for (long row = 0; row < rows; ++row) {
        for (long j = 0; j < width; ++j) {
          out[first + j] += m[row * columns + first + j];
        }
      }
    }
  }
}

void relu_mask(float* __restrict dx, const float* __restrict y, long begin, long end) {
  for (long i = begin; i < end; ++i) {
    dx[i] = y[i] > 0 ? dx[i] : 0;
  }
}

// exp for x <= 0: 2^n times a polynomial of degree 6 on half a binade each way (Cephes' coefficients).
inline float exp_of(float x) {
  x = x < -87 ? -87 : x;
  const float n = __builtin_rintf(x * 1.44269504F);
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + (r + 1);
  return p * __builtin_bit_cast(float, (static_cast<int>(n) + 127) << 23);
}

double cross_entropy(const float* __restrict z, const std::int64_t* __restrict y, float* __restrict dz, long batch,
                     long classes, long begin, long end) {
  const float share = 1.0F / static_cast<float>(batch);
  double loss = 0;
  for (long row = begin; row < end; ++row) {
    const float* in = z + row * classes;
    float* out = dz + row * classes;
    float highest = in[0];
    for (long j = 1; j < classes; ++j) {
      highest = in[j] > highest ? in[j] : highest;
    }
    float sum = 0;
    for (long j = 0; j < classes; ++j) {
      out[j] = exp_of(in[j] - highest);
      sum += out[j];
    }
    const float scale = share / sum;
    for (long j = 0; j < classes; ++j) {
      out[j] *= scale;
    }
    out[y[row]] -= share;
    loss += __builtin_logf(sum) + (highest - in[y[row]]);
  }
  return loss;
}

double mse(const float* __restrict z, const float* __restrict y, float* __restrict dz, long count) {
  const float share = 2.0F / static_cast<float>(count);
  float sum = 0;
  for (long i = 0; i < count; ++i) {
    const float difference = z[i] - y[i];
    sum += difference * difference;
    dz[i] = difference * share;
  }
  return sum / static_cast<float>(count);
}

void sgd(float* __restrict w, const float* __restrict g, float lr, long begin, long end) {
  for (long i = begin; i < end; ++i) {
    w[i] -= lr * g[i];
  }
}

void momentum(float* __restrict w, const float* __restrict g, float* __restrict v, float lr, float factor, long begin,
              long end) {
  for (long i = begin; i < end; ++i) {
    v[i] = factor * v[i] + g[i];
    w[i] -= lr * v[i];
  }
}

void adam(float* __restrict w, const float* __restrict g, float* __restrict m, float* __restrict v, float rate,
          float scale, long begin, long end) {
  for (long i = begin; i < end; ++i) {
    m[i] = 0.9F * m[i] + 0.1F * g[i];
    v[i] = 0.999F * v[i] + 0.001F * (g[i] * g[i]);
    w[i] -= rate * m[i] / (__builtin_sqrtf(v[i]) * scale + 1e-8F);
  }
}

}  // namespace

extern const FloorLoops loops;
const FloorLoops loops{forward,       weight_grad, input_grad, column_sums, relu_mask,
                       cross_entropy, mse,         sgd,        momentum,    adam};

}  // namespace bench::TANDEM_ISA

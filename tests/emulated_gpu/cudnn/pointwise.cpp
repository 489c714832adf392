#include <cmath>
#include <numbers>

#include "descriptor.h"

// The formulas of element-wise operations as in cuDNN 9.19's kernels for compute capability 9.0, NaN included.

namespace emulated_gpu::cudnn {

bool is_backward(std::int64_t mode) { return mode >= CUDNN_POINTWISE_RELU_BWD && mode < CUDNN_POINTWISE_CMP_EQ; }

int inputs_of(std::int64_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_SUB: return 2;
    default: return is_backward(mode) ? 2 : mode >= CUDNN_POINTWISE_RELU_FWD && mode <= 107 ? 1 : 0;
  }
}

// For gradients, x is dy and b is the activation's input.
float compute(const Object& pointwise, float x, float b) {
  const auto alpha = static_cast<float>(pointwise.real(CUDNN_ATTR_POINTWISE_ELU_ALPHA));
  const auto softplus = static_cast<float>(pointwise.real(CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA));
  const auto swish = static_cast<float>(pointwise.real(CUDNN_ATTR_POINTWISE_SWISH_BETA));
  const auto sigmoid = [](float v) { return 1 / (1 + std::exp(-v)); };
  const auto cdf = [](float v) { return 0.5F * (1 + std::erf(v * static_cast<float>(1 / std::numbers::sqrt2))); };
  constexpr float kScale = 0.7978845608F;  // sqrt(2 / pi)
  const auto inner = [](float v) { return kScale * (v + 0.044715F * v * v * v); };
  switch (pointwise.number(CUDNN_ATTR_POINTWISE_MODE)) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_RELU_FWD: return x < 0 ? 0 : x;
    case CUDNN_POINTWISE_TANH_FWD: return std::tanh(x);
    case CUDNN_POINTWISE_SIGMOID_FWD: return sigmoid(x);
    case CUDNN_POINTWISE_ELU_FWD: return x < 0 ? alpha * (std::exp(x) - 1) : x;
    case CUDNN_POINTWISE_GELU_FWD: return x * cdf(x);
    case CUDNN_POINTWISE_SOFTPLUS_FWD:
      return x > 0 ? std::log(std::exp(-softplus * x) + 1) / softplus + x
                   : std::log(std::exp(softplus * x) + 1) / softplus;
    case CUDNN_POINTWISE_SWISH_FWD: return x * sigmoid(swish * x);
    case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD: return 0.5F * x * (1 + std::tanh(inner(x)));
    case CUDNN_POINTWISE_RELU_BWD: return b <= 0 ? 0 : x;
    case CUDNN_POINTWISE_TANH_BWD: return x * (1 - std::tanh(b) * std::tanh(b));
    case CUDNN_POINTWISE_SIGMOID_BWD: return x * sigmoid(b) * (1 - sigmoid(b));
    case CUDNN_POINTWISE_ELU_BWD: return b > 0 ? x : x * alpha * std::exp(b);
    case CUDNN_POINTWISE_GELU_BWD:
      return x * (cdf(b) + b * std::exp(-0.5F * b * b) *
                               static_cast<float>(0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2));
    case CUDNN_POINTWISE_SOFTPLUS_BWD: return x * sigmoid(softplus * b);
    case CUDNN_POINTWISE_SWISH_BWD: {
      const float s = sigmoid(swish * b);
      return x * s * (1 + swish * b * (1 - s));
    }
    default: {
      const float t = std::tanh(inner(b));
      return x * (0.5F * (1 + t) + 0.5F * b * (1 - t * t) * kScale * (1 + 3 * 0.044715F * b * b));
    }
  }
}

}  // namespace emulated_gpu::cudnn

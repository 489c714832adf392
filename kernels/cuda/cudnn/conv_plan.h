#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>

#include <tandem/kernels/conv.h>
#include <tandem/kernels/cuda/cudnn/graph.h>

// A convolution, or one of its gradients, as a graph of cuDNN's operations.

namespace tandem::inline v0::kernels::gpu::cudnn {

/// The result that is computed from the other two tensors.
enum class ConvKind : std::uint8_t { forward, in_grad, weight_grad };

/// All that decides which engine can compute a convolution. A process has one version of cuDNN and a cache for each
/// GPU, so neither is here.
struct ConvKey {
  ConvKind kind;
  DType dtype;
  bool tf32;           // factors of f32 may be rounded
  bool deterministic;  // equal calls give equal bits
  bool accumulate;
  bool bias;
  ConvShape shape;
  std::array<std::int64_t, 4> alignment;  // in bytes, of the tensors in the order of ConvPlan's numbers

  auto operator<=>(const ConvKey&) const = default;
};

/// A finished plan. Its tensors have numbers: 0 is the result, 1 and 2 are the factors in the order of the kernel's
/// members, and 3 is the bias.
struct ConvPlan : Plan {
  static constexpr std::int64_t kResult = 0;
  static constexpr std::int64_t kBias = 3;
};

/// The padding behind the image that gives the shape's `out`. Returns nullopt if no padding does.
std::optional<Sizes2> padding_behind(const ConvShape& shape);

/// Returns nullopt if cuDNN has no engine for the key.
std::optional<ConvPlan> make_conv_plan(cudnnHandle_t handle, const ConvKey& key);

}  // namespace tandem::inline v0::kernels::gpu::cudnn

#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

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
  bool relu;
  MemoryFormat format;
  ConvShape shape;
  std::array<std::int64_t, 4> alignment;  // in bytes, of the tensors in the order of their numbers

  auto operator<=>(const ConvKey&) const = default;
};

/// The tensors of a plan have numbers: 1 and 2 are the factors in the order of the kernel's members.
inline constexpr std::int64_t kConvResult = 0;
inline constexpr std::int64_t kConvBias = 3;

/// The padding behind the image that gives the shape's `out`. Returns nullopt if no padding does.
std::optional<Sizes2> padding_behind(const ConvShape& shape);

/// Returns plans with the engines that cuDNN has for the key, in its order: at most `most`.
std::vector<Plan> make_conv_plans(cudnnHandle_t handle, const ConvKey& key, std::size_t most);

}  // namespace tandem::inline v0::kernels::gpu::cudnn

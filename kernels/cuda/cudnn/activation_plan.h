#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>

#include <tandem/kernels/cuda/cudnn/graph.h>
#include <tandem/kernels/pointwise.h>

// An activation as a graph of cuDNN's element-wise operations, and the kernel that cuDNN compiles for it.

namespace tandem::inline v0::kernels::gpu::cudnn {

/// The properties that a kernel is compiled for.
struct ActivationKey {
  PointwiseOp op;
  DType dtype;
  std::int64_t numel;
  std::array<std::int64_t, 3> alignment;  // of the result and the inputs, in bytes
  double s;                               // 0 if the op has no such number

  auto operator<=>(const ActivationKey&) const = default;
};

/// True if cuDNN has the op with this type and these numbers.
bool has_activation(const Pointwise& kernel) noexcept;
/// True if a kernel of the op depends on the number s, which is then part of the key.
bool depends_on_s(PointwiseOp op) noexcept;

/// A finished plan. Its tensors have numbers: 0 is the result, 1 and 2 are the inputs.
struct ActivationPlan : Plan {
  bool takes_one;  // tensor kOne is the number 1, passed by value

  static constexpr std::int64_t kOne = 9;
};

/// Returns nullopt if cuDNN has no kernel for the key.
std::optional<ActivationPlan> make_activation_plan(cudnnHandle_t handle, const ActivationKey& key);

}  // namespace tandem::inline v0::kernels::gpu::cudnn

#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/kernels/cuda/cudnn/library.h>
#include <tandem/kernels/pointwise.h>

// An activation as a graph of cuDNN's element-wise operations, and the kernel that cuDNN compiles for it.

namespace tandem::inline v0::kernels::gpu::cudnn {

/// Thrown if cuDNN has no kernel for the description. Caught where a plan is made.
struct Refusal {
  cudnnStatus_t status;
};
inline void require_or_refuse(cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]] {
    throw Refusal{status};
  }
}

/// A descriptor of cuDNN's graphs. It first gets its attributes and is then finished; after that it may be an attribute
/// of other descriptors.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    require_or_refuse(api().cudnnBackendCreateDescriptor(type, &descriptor_));
  }
  ~Descriptor() {
    if (descriptor_ != nullptr) {
      api().cudnnBackendDestroyDescriptor(descriptor_);
    }
  }
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, &value, 1);
  }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    return set(name, values.data(), static_cast<std::int64_t>(values.size()));
  }
  Descriptor& finish() {
    require_or_refuse(api().cudnnBackendFinalize(descriptor_));
    return *this;
  }

  cudnnBackendDescriptor_t get() const noexcept { return descriptor_; }

 private:
  template <class T>
  static constexpr cudnnBackendAttributeType_t type_of() {
    if constexpr (std::is_same_v<T, std::int64_t>) return CUDNN_TYPE_INT64;
    if constexpr (std::is_same_v<T, double>) return CUDNN_TYPE_DOUBLE;
    if constexpr (std::is_same_v<T, bool>) return CUDNN_TYPE_BOOLEAN;
    if constexpr (std::is_same_v<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
    if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
    if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
    if constexpr (std::is_same_v<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
    if constexpr (std::is_same_v<T, const void*>) return CUDNN_TYPE_VOID_PTR;
    if constexpr (std::is_same_v<T, cudnnBackendDescriptor_t>) return CUDNN_TYPE_BACKEND_DESCRIPTOR;
  }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, const T* values, std::int64_t count) {
    require_or_refuse(api().cudnnBackendSetAttribute(descriptor_, name, type_of<T>(), count, values));
    return *this;
  }

  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

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
struct ActivationPlan {
  std::vector<Descriptor> parts;  // the plan's components, and the plan itself last
  std::int64_t workspace = 0;
  bool takes_one = false;  // tensor kOne is the number 1, passed by value

  static constexpr std::int64_t kOne = 9;
  cudnnBackendDescriptor_t plan() const noexcept { return parts.back().get(); }
};

/// Returns nullopt if cuDNN has no kernel for the key.
std::optional<ActivationPlan> make_plan(cudnnHandle_t handle, const ActivationKey& key);

}  // namespace tandem::inline v0::kernels::gpu::cudnn

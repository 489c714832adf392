#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/kernels/cuda/cudnn/library.h>

// cuDNN's graphs of operations, and the plans that execute them.

namespace tandem::inline v0::kernels::gpu::cudnn {

using Handle = cudnnBackendDescriptor_t;

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
    if constexpr (std::is_same_v<T, float>) return CUDNN_TYPE_FLOAT;
    if constexpr (std::is_same_v<T, double>) return CUDNN_TYPE_DOUBLE;
    if constexpr (std::is_same_v<T, bool>) return CUDNN_TYPE_BOOLEAN;
    if constexpr (std::is_same_v<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
    if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>) return CUDNN_TYPE_CONVOLUTION_MODE;
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

/// A dense tensor, not finished yet.
Descriptor dense_tensor(std::int64_t number, cudnnDataType_t type, const std::vector<std::int64_t>& sizes,
                        std::int64_t alignment, MemoryFormat format = MemoryFormat::contiguous);

/// A graph of operations: its descriptors, and which of them are operations.
struct Graph {
  std::vector<Descriptor> parts{};
  std::vector<Handle> operations{};

  /// Finishes a descriptor and keeps it as long as the graph.
  Handle add(Descriptor& part) { return parts.emplace_back(std::move(part.finish())).get(); }
  void add_operation(Descriptor& part) { operations.push_back(add(part)); }
};

/// A graph with an engine that executes it. Plans may share a graph.
struct Plan {
  std::shared_ptr<const Graph> graph;
  Descriptor configuration;
  Descriptor finished;
  std::int64_t workspace;  // bytes
};

using Notes = std::vector<cudnnBackendNumericalNote_t>;

/// Returns plans with the first engines that cuDNN proposes, that have none of the unwanted notes, need at most 256 MiB
/// of workspace, and can be made. They are at most `most`, in cuDNN's order. Those that cuDNN proposes as a fallback
/// come only if there are no others.
std::vector<Plan> make_plans(cudnnHandle_t handle, Graph graph, std::size_t most, const Notes& unwanted = {});

/// The addresses of a plan's tensors, by unique id.
using Addresses = std::vector<std::pair<std::int64_t, const void*>>;

/// Starts a plan on the queue's stream, or returns false if cuDNN refuses to. The caller holds the session's mutex.
/// `name` is for messages.
bool execute(const Queue& queue, const Session& session, const Plan& plan, const Addresses& addresses,
             const void* workspace, const char* name);

/// The alignment of an address in bytes: at most `most`, as far as it matters to cuDNN.
inline constexpr std::int64_t kMostTensorAlignment = 16;
inline std::int64_t tensor_alignment(const void* data, std::int64_t most = kMostTensorAlignment) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | static_cast<std::uintptr_t>(most);
  return static_cast<std::int64_t>(address & (~address + 1));
}

}  // namespace tandem::inline v0::kernels::gpu::cudnn

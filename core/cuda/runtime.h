#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include <tandem/core/device.h>
#include <tandem/core/export.h>

// Internal: how tandem calls CUDA. Every status is looked at, and an error says what the GPU was given to do.

namespace tandem::inline v0::cuda {

/// Throws DeviceError: CUDA's name and words for `status`, `call`, and for errors that a kernel left behind the last
/// launches of this thread.
[[noreturn]] TANDEM_API void throw_status(cudaError_t status, const char* call);

/// require(cudaEventRecord(...), "cudaEventRecord")
inline void require(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]] {
    throw_status(status, call);
  }
}

/// Remembers a launch of this thread, for throw_status(). `name` is a literal.
TANDEM_API void note_launch(const char* name) noexcept;

/// The last launches of this thread, "pointwise, matmul, adam": the latest last.
std::string last_launches();

/// Makes a GPU CUDA's current one for a scope.
class TANDEM_API GpuScope {
 public:
  [[nodiscard]] explicit GpuScope(int index);
  ~GpuScope();
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;

 private:
  int saved_;
};

}  // namespace tandem::inline v0::cuda

#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include <tandem/core/device.h>
#include <tandem/core/export.h>

// Internal: how tandem calls CUDA. Every status is checked, and an error names the GPU's recent work.

namespace tandem::inline v0::cuda {

/// Throws DeviceError with CUDA's name and text for `status`, and with `call`. For an error caused by a kernel, the
/// text also lists the last launches of this thread.
[[noreturn]] TANDEM_API void throw_status(cudaError_t status, const char* call);

/// Throws unless `status` is success: require(cudaEventRecord(...), "cudaEventRecord").
inline void require(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]] {
    throw_status(status, call);
  }
}

/// Remembers a launch of this thread for throw_status(). `name` must be a literal.
TANDEM_API void note_launch(const char* name) noexcept;

/// The last launches of this thread, most recent last: "pointwise, matmul, adam".
std::string last_launches();

/// Makes a GPU the current CUDA device for a scope.
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

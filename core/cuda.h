#pragma once

#include <cstdint>
#include <string>

#include <tandem/core/export.h>

// Queries the available GPUs. This header needs no CUDA header; a build without CUDA reports no GPU.

namespace tandem::inline v0::cuda {

/// Whether at least one GPU can be used by this build on this machine. Never throws.
inline bool is_available() noexcept;

/// Number of GPUs, as limited by CUDA_VISIBLE_DEVICES: `cuda:0` is the first visible GPU. Returns 0 without a driver,
/// without a GPU, or in a build without CUDA. Never throws. The number is fixed at the first call in the process; a
/// child forked after that has no GPU, because CUDA does not work in a forked child.
TANDEM_API int device_count() noexcept;

/// The model name of GPU `index`, for example "NVIDIA H200". Throws DeviceError unless 0 <= index < device_count().
TANDEM_API std::string device_name(int index);

/// Properties of a GPU.
struct DeviceProperties {
  std::string name;               ///< model name, for example "NVIDIA H200"
  std::int64_t total_memory = 0;  ///< memory in bytes
  int multi_processor_count = 0;  ///< number of multiprocessors, the units that run blocks of threads
};

/// The properties of GPU `index`. Throws DeviceError unless 0 <= index < device_count().
TANDEM_API DeviceProperties device_properties(int index);

/// Whether GPU `index` can reach the memory of GPU `peer`, as by NVLink. Tensors then move between the two directly;
/// otherwise their copies go through the host's memory. Throws DeviceError unless both are less than device_count().
TANDEM_API bool can_device_access_peer(int index, int peer);

/// Says why device_count() is 0: the build has no CUDA, CUDA sees no GPU, or the process was forked after its first use
/// of CUDA.
TANDEM_API const char* why_unavailable() noexcept;

inline bool is_available() noexcept { return device_count() > 0; }

}  // namespace tandem::inline v0::cuda

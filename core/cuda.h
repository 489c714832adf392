#pragma once

#include <cstdint>
#include <string>

#include <tandem/core/export.h>

// Which GPUs there are. Needs no CUDA header, and a build without CUDA answers too: it sees none.

namespace tandem::inline v0::cuda {

/// Whether at least one GPU can be used by this build on this machine. Never throws.
inline bool is_available() noexcept;

/// Number of GPUs, as limited by CUDA_VISIBLE_DEVICES: `cuda:0` is the first of those left visible. 0 without a
/// driver, without a GPU, or in a build without CUDA. Never throws. Fixed at the first call in the process; from then
/// on a forked child has none, since CUDA does not work in one.
TANDEM_API int device_count() noexcept;

/// The model of GPU `index`, such as "NVIDIA H200". Throws DeviceError unless 0 <= index < device_count().
TANDEM_API std::string device_name(int index);

/// What a GPU is made of.
struct DeviceProperties {
  std::string name;               ///< such as "NVIDIA H200"
  std::int64_t total_memory = 0;  ///< bytes
  int multi_processor_count = 0;  ///< what runs blocks of threads
};

/// Of GPU `index`. Throws DeviceError unless 0 <= index < device_count().
TANDEM_API DeviceProperties device_properties(int index);

/// Why device_count() is 0: no CUDA in this build, no GPU that it can see, or a fork() after CUDA was first used.
TANDEM_API const char* why_unavailable() noexcept;

inline bool is_available() noexcept { return device_count() > 0; }

}  // namespace tandem::inline v0::cuda

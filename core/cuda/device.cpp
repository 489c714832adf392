#include <tandem/core/cuda.h>

#include <algorithm>

#include <cuda_runtime_api.h>

#include <tandem/core/check.h>
#include <tandem/core/cuda/per_gpu.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/core/fork.h>

namespace tandem::inline v0::cuda {

namespace {

constinit bool is_child = false;  // forked from a process that uses CUDA

int count_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {  // no driver, no GPU, or none visible
    cudaGetLastError();                             // clears the error, or a later check would report it
    return 0;
  }
  core::in_forked_child([] { is_child = true; });
  return std::min(count, kMostGpus);
}

cudaDeviceProp properties_of(int index, const char* asked) {
  const int count = device_count();
  check<DeviceError>(count > 0, "cuda::{}({}): {}", asked, index, why_unavailable());
  check<DeviceError>(index >= 0 && index < count, "cuda::{}({}): there are {} GPUs, cuda:0 to cuda:{}", asked, index,
                     count, count - 1);
  cudaDeviceProp properties;
  require(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return properties;
}

}  // namespace

int device_count() noexcept {
  static const int count = count_devices();
  return is_child ? 0 : count;
}

std::string device_name(int index) { return properties_of(index, "device_name").name; }

DeviceProperties device_properties(int index) {
  const cudaDeviceProp properties = properties_of(index, "device_properties");
  return {.name = properties.name,
          .total_memory = static_cast<std::int64_t>(properties.totalGlobalMem),
          .multi_processor_count = properties.multiProcessorCount};
}

const char* why_unavailable() noexcept {
  return is_child
             ? "CUDA was initialised before fork(), and does not work in the child: fork before the first use of a "
               "GPU (cuda::is_available() is one), or start the child's work by exec()"
             : "no GPU is visible: look at nvidia-smi and CUDA_VISIBLE_DEVICES";
}

}  // namespace tandem::inline v0::cuda

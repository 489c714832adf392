#include <tandem/core/cuda.h>

#include <tandem/core/check.h>

#if TANDEM_CUDA
#include <cuda_runtime_api.h>
#endif

namespace tandem::inline v0::cuda {

namespace {

#if TANDEM_CUDA
constexpr const char* kNone = "no GPU is visible: look at nvidia-smi and CUDA_VISIBLE_DEVICES";

int count_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {  // no driver, no GPU, or none visible
    cudaGetLastError();                             // or a later, unrelated check would report it
    return 0;
  }
  return count;
}

std::string read_name(int index) {
  cudaDeviceProp properties;
  const cudaError_t status = cudaGetDeviceProperties(&properties, index);
  check<DeviceError>(status == cudaSuccess, "cuda::device_name({}): {}", index, cudaGetErrorString(status));
  return properties.name;
}
#else
constexpr const char* kNone =
    "this build of tandem has no CUDA (it was configured with TANDEM_CUDA=OFF, or found no toolkit)";

int count_devices() { return 0; }

std::string read_name(int) { return {}; }
#endif

}  // namespace

bool is_available() noexcept { return device_count() > 0; }

int device_count() noexcept {
  static const int count = count_devices();
  return count;
}

std::string device_name(int index) {
  const int count = device_count();
  check<DeviceError>(count > 0, "cuda::device_name({}): {}", index, kNone);
  check<DeviceError>(index >= 0 && index < count, "cuda::device_name({}): there are {} GPUs, cuda:0 to cuda:{}", index,
                     count, count - 1);
  return read_name(index);
}

}  // namespace tandem::inline v0::cuda

#include <tandem/core/cuda/runtime.h>

#include <array>
#include <cstddef>
#include <string>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>

namespace tandem::inline v0::cuda {

namespace {

constexpr std::size_t kRemembered = 8;

struct Launches {
  std::array<const char*, kRemembered> names{};
  std::size_t count = 0;
};

constinit thread_local Launches launches;

// Whether a kernel caused the error: the context is lost, and every later CUDA call reports the same error.
bool is_sticky(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable: return true;
    default: return false;
  }
}

}  // namespace

void note_launch(const char* name) noexcept {
  launches.names[launches.count % kRemembered] = name;
  ++launches.count;
}

std::string last_launches() {
  std::string text;
  const std::size_t kept = launches.count < kRemembered ? launches.count : kRemembered;
  for (std::size_t i = launches.count - kept; i < launches.count; ++i) {
    text += (text.empty() ? "" : ", ") + std::string(launches.names[i % kRemembered]);
  }
  return text.empty() ? "none" : text;
}

void throw_status(cudaError_t status, const char* call) {
  cudaGetLastError();  // clears the error; otherwise a later, unrelated check would report it
  check<DeviceError>(device_count() > 0, "CUDA: {} ({}), from {}: {}", cudaGetErrorString(status),
                     cudaGetErrorName(status), call, why_unavailable());
  if (is_sticky(status)) {
    fail<DeviceError>(
        "CUDA: {} ({}), found at {}. A kernel went wrong before; the last ones this thread launched: {}. This process "
        "can use the GPU no more: end it, and run it again with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer to "
        "see which",
        cudaGetErrorString(status), cudaGetErrorName(status), call, last_launches());
  }
  if (status == cudaErrorNoKernelImageForDevice) {
    fail<DeviceError>(
        "CUDA: {} ({}), found at {}. This build has no code for this GPU: configure with "
        "-DTANDEM_CUDA_ARCHITECTURES=native, or with its compute capability",
        cudaGetErrorString(status), cudaGetErrorName(status), call);
  }
  fail<DeviceError>("CUDA: {} ({}), from {}", cudaGetErrorString(status), cudaGetErrorName(status), call);
}

GpuScope::GpuScope(int index) {
  require(cudaGetDevice(&saved_), "cudaGetDevice");
  if (saved_ == index) {
    saved_ = -1;
    return;
  }
  require(cudaSetDevice(index), "cudaSetDevice");
}

GpuScope::~GpuScope() {
  if (saved_ >= 0) {
    cudaSetDevice(saved_);
  }
}

}  // namespace tandem::inline v0::cuda

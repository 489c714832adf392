#include <algorithm>
#include <iterator>

#include <cuda_runtime.h>

// The errors of the emulated GPU, and errors that tests plant.

namespace {

struct Named {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define TANDEM_ERROR(error, text) {error, #error, text}

constexpr Named kErrors[] = {
    TANDEM_ERROR(cudaSuccess, "no error"),
    TANDEM_ERROR(cudaErrorInvalidValue, "invalid argument"),
    TANDEM_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    TANDEM_ERROR(cudaErrorInitializationError, "initialization error"),
    TANDEM_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    TANDEM_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    TANDEM_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    TANDEM_ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    TANDEM_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    TANDEM_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    TANDEM_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    TANDEM_ERROR(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    TANDEM_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    TANDEM_ERROR(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    TANDEM_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    TANDEM_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    TANDEM_ERROR(cudaErrorNotReady, "device not ready"),
    TANDEM_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    TANDEM_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    TANDEM_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    TANDEM_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    TANDEM_ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    TANDEM_ERROR(cudaErrorAssert, "device-side assert triggered"),
    TANDEM_ERROR(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    TANDEM_ERROR(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    TANDEM_ERROR(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    TANDEM_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    TANDEM_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    TANDEM_ERROR(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    TANDEM_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    TANDEM_ERROR(cudaErrorNotSupported, "operation not supported"),
    TANDEM_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    TANDEM_ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    TANDEM_ERROR(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    TANDEM_ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    TANDEM_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    TANDEM_ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    TANDEM_ERROR(cudaErrorStreamCaptureImplicit,
                 "operation would make the legacy stream depend on a capturing blocking stream"),
    TANDEM_ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    TANDEM_ERROR(cudaErrorStreamCaptureWrongThread,
                 "attempt to terminate a thread-local capture sequence from another thread"),
    TANDEM_ERROR(cudaErrorUnknown, "unknown error"),
};

#undef TANDEM_ERROR

const Named* find(cudaError_t error) {
  const auto* found =
      std::find_if(std::begin(kErrors), std::end(kErrors), [error](const Named& e) { return e.error == error; });
  return found == std::end(kErrors) ? nullptr : found;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  const Named* found = find(error);
  return found == nullptr ? "unrecognized error code" : found->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const Named* found = find(error);
  return found == nullptr ? "unrecognized error code" : found->text;
}

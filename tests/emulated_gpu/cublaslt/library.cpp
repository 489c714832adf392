#include "problem.h"

#include <cuda_runtime.h>

#include <new>

#include "emulated_gpu.h"

// The handle, versions and names.

struct cublasLtContext {
  int device;
};

namespace emulated_gpu::cublaslt {

// A handle belongs to the device that was current when it was made. The real library does not check that, so wrong use
// may work for a while.
cublasStatus_t check_handle(cublasLtHandle_t handle) {
  int device = 0;
  if (handle == nullptr) {
    return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "the handle is null");
  }
  if (cudaGetDevice(&device) != cudaSuccess || device != handle->device) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the handle was made for another device");
  }
  return CUBLAS_STATUS_SUCCESS;
}

namespace {

struct Named {
  cublasStatus_t status;
  const char* name;
  const char* text;
};
constexpr Named kUnknown = {CUBLAS_STATUS_SUCCESS, "unrecognized status", "unrecognized status"};
constexpr Named kStatuses[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH",
     "the function requires an architectural feature absent from the device"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR", "an access to GPU memory space failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "the function failed to launch on the GPU"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "the requested functionality is not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR", "the license check failed"},
};

const Named& named(cublasStatus_t status) {
  for (const Named& each : kStatuses) {
    if (each.status == status) {
      return each;
    }
  }
  return kUnknown;
}

}  // namespace

}  // namespace emulated_gpu::cublaslt

using emulated_gpu::cublaslt::named;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  int count = 0;
  int device = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 || cudaGetDevice(&device) != cudaSuccess) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  if (emulated_gpu::lacks_memory("cublasLtCreate")) {
    return CUBLAS_STATUS_ALLOC_FAILED;
  }
  *handle = new (std::nothrow) cublasLtContext{device};
  return *handle == nullptr ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) { return CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH; }
size_t cublasLtGetCudartVersion(void) { return CUDART_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) { return named(status).name; }
const char* cublasLtGetStatusString(cublasStatus_t status) { return named(status).text; }

}  // extern "C"

#include <cstdio>
#include <string>

#include <cuda_runtime.h>

#include <tandem/core/float16.h>

#include "descriptor.h"

// The handle, versions, texts and elements.

namespace emulated_gpu::cudnn {

namespace {
thread_local std::string last_error;
}

cudnnStatus_t refuse(cudnnStatus_t status, const char* why) {
  last_error = why;
  return status;
}

cudnnStatus_t check_handle(cudnnHandle_t handle) {
  int device = 0;
  if (handle == nullptr) {
    return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the handle is null");
  }
  if (cudaGetDevice(&device) != cudaSuccess || device != handle->device) {
    return refuse(CUDNN_STATUS_BAD_PARAM, "the handle was made for another device");
  }
  return CUDNN_STATUS_SUCCESS;
}

bool on_device(const void* address) {
  cudaPointerAttributes attributes{};
  return cudaPointerGetAttributes(&attributes, address) == cudaSuccess && attributes.type != cudaMemoryTypeUnregistered;
}

std::int64_t bytes_of(std::int64_t data_type) {
  switch (data_type) {
    case CUDNN_DATA_FLOAT: return 4;
    case CUDNN_DATA_DOUBLE: return 8;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16: return 2;
    default: return 0;
  }
}

double load(std::int64_t data_type, const void* base, std::int64_t index) {
  switch (data_type) {
    case CUDNN_DATA_FLOAT: return static_cast<double>(static_cast<const float*>(base)[index]);
    case CUDNN_DATA_DOUBLE: return static_cast<const double*>(base)[index];
    case CUDNN_DATA_HALF: return static_cast<double>(static_cast<const tandem::Float16*>(base)[index]);
    default: return static_cast<double>(static_cast<const tandem::BFloat16*>(base)[index]);
  }
}

void store(std::int64_t data_type, void* base, std::int64_t index, double value) {
  const auto narrow = static_cast<float>(value);
  switch (data_type) {
    case CUDNN_DATA_FLOAT: static_cast<float*>(base)[index] = narrow; break;
    case CUDNN_DATA_DOUBLE: static_cast<double*>(base)[index] = value; break;
    case CUDNN_DATA_HALF: static_cast<tandem::Float16*>(base)[index] = tandem::Float16(narrow); break;
    default: static_cast<tandem::BFloat16*>(base)[index] = tandem::BFloat16(narrow); break;
  }
}

}  // namespace emulated_gpu::cudnn

using namespace emulated_gpu::cudnn;

extern "C" {

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (CUDNN_STATUS_CATEGORY(static_cast<int>(status))) {
    case 0: return "CUDNN_STATUS_SUCCESS";
    case 1000: return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2000: return "CUDNN_STATUS_BAD_PARAM";
    case 3000: return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4000: return "CUDNN_STATUS_INTERNAL_ERROR";
    default: return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
  std::snprintf(message, max_size, "%s", last_error.c_str());
  last_error.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  int count = 0;
  int device = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 || cudaGetDevice(&device) != cudaSuccess) {
    return refuse(CUDNN_STATUS_NOT_INITIALIZED, "no device");
  }
  *handle = new cudnnContext{device, nullptr};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  const cudnnStatus_t status = check_handle(handle);
  if (status == CUDNN_STATUS_SUCCESS) {
    handle->stream = stream;
  }
  return status;
}

}  // extern "C"

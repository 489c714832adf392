#pragma once

#include <string>

#include <cudnn.h>

#include <tandem/core/cuda/ordered_mutex.h>
#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/kernels/cuda/launch/queue.h>

// cuDNN's functions, looked up at first use, so that programs start without the library, and its sessions on GPUs.

namespace tandem::inline v0::kernels::gpu::cudnn {

// These functions exist since version 9.0 and are not deprecated in version 9.
#define TANDEM_CUDNN_FUNCTIONS(f)                                                                                 \
  f(cudnnGetVersion) f(cudnnGetErrorString) f(cudnnGetLastErrorString) f(cudnnCreate) f(cudnnSetStream)           \
      f(cudnnCreateTensorDescriptor) f(cudnnSetTensor4dDescriptor) f(cudnnSoftmaxForward) f(cudnnSoftmaxBackward) \
          f(cudnnBackendCreateDescriptor) f(cudnnBackendDestroyDescriptor) f(cudnnBackendSetAttribute)            \
              f(cudnnBackendGetAttribute) f(cudnnBackendFinalize) f(cudnnBackendExecute)

struct Functions {
#define TANDEM_CUDNN_MEMBER(name) decltype(&::name) name = nullptr;
  TANDEM_CUDNN_FUNCTIONS(TANDEM_CUDNN_MEMBER)
#undef TANDEM_CUDNN_MEMBER
};

struct Library {
  Functions functions{};
  std::string problem{};  // why the library can't be used; empty if it can
};

/// Loads the library `file`, as dlopen() finds it. The library is never unloaded.
TANDEM_API Library load(const char* file);
/// Returns the process's library, looked for at the first call.
TANDEM_API const Library& loaded();
/// Returns the library's functions. Only valid if it has no problem.
inline const Functions& api() { return loaded().functions; }

/// True if a status says that cuDNN has no kernel for the request.
inline bool is_refusal(cudnnStatus_t status) { return status >= 2000 && status < 4000; }
/// Throws DeviceError with cuDNN's words for `status`, and `call`.
[[noreturn]] void throw_status(cudnnStatus_t status, const char* call);
inline void require(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]] {
    throw_status(status, call);
  }
}

/// cuDNN's name for a floating type.
inline cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDNN_DATA_DOUBLE;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    case DType::f16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_FLOAT;
  }
}

/// A handle and the objects made with it. Only one thread may use a handle at a time, so each call holds `mutex`.
struct Session {
  explicit Session(const cuda::Gpu& gpu);
  /// Returns the session of the queue's GPU, made at first use and kept to the end of the process. Returns null if the
  /// session does not exist yet and can't be made, because the queue's work is being captured.
  static Session* of(const Queue& queue);

  cuda::OrderedMutex<cuda::LockPlace::library> mutex;
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t tensor = nullptr;  // describes the tensors of the softmax being started
};

}  // namespace tandem::inline v0::kernels::gpu::cudnn

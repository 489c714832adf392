#pragma once

#include <string>

#include <cudnn.h>

#include <tandem/core/export.h>

// Internal: cuDNN's functions, found when they are first asked for, so that programs start without the library.

namespace tandem::inline v0::kernels::gpu::cudnn {

// Not deprecated in version 9, and there since 9.0.
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
  std::string problem{};  // why it can't be used; empty where it can
};

/// The library in `file`, as dlopen() finds it. It is never unloaded.
TANDEM_API Library load(const char* file);
/// The process's one, looked for at the first call.
TANDEM_API const Library& loaded();
/// Its functions. Only where it has no problem.
inline const Functions& api() { return loaded().functions; }

/// Whether a status says that cuDNN has nothing for what was asked.
inline bool is_refusal(cudnnStatus_t status) { return status >= 2000 && status < 4000; }
/// Throws DeviceError: cuDNN's words for `status`, and `call`.
[[noreturn]] void throw_status(cudnnStatus_t status, const char* call);
inline void require(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]] {
    throw_status(status, call);
  }
}

}  // namespace tandem::inline v0::kernels::gpu::cudnn

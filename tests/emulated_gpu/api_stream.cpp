#include <algorithm>

#include "capture.h"
#include "runtime.h"

// Functions for streams.

using emulated_gpu::detail::call;
using emulated_gpu::detail::forbid_in_capture;
using emulated_gpu::detail::Lock;
using emulated_gpu::detail::Runtime;
using emulated_gpu::detail::Task;

namespace {

constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

// The first check of calls on a stream that must not be captured.
cudaError_t check_uncaptured(Runtime& runtime, cudaStream_t stream) {
  const cudaError_t error = runtime.check(stream);
  return error != cudaSuccess ? error : forbid_in_capture(*stream);
}

}  // namespace

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return call([&](Runtime& runtime, Lock&) {
    if (runtime.devices.empty()) {
      return cudaErrorNoDevice;
    }
    if (stream == nullptr || (flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0) {
      return cudaErrorInvalidValue;
    }
    auto made = std::make_unique<CUstream_st>();
    made->device = &runtime.current();
    made->flags = flags;
    made->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
    *stream = made.get();
    runtime.current().streams.push_back(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, kLeastPriority);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = check_uncaptured(runtime, stream); error != cudaSuccess) {
      return error;
    }
    runtime.finish(lock, *stream);
    auto& streams = stream->device->streams;
    std::erase_if(streams, [stream](const auto& known) { return known.get() == stream; });
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = check_uncaptured(runtime, stream); error != cudaSuccess) {
      return error;
    }
    runtime.finish(lock, *stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = check_uncaptured(runtime, stream); error != cudaSuccess) {
      return error;
    }
    runtime.go_on(lock, *stream);
    return stream->queue.empty() && !stream->running ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call([&](Runtime& runtime, Lock&) {
    const cudaError_t error = runtime.check(stream);
    if (error == cudaSuccess) {
      *priority = stream->priority;
    }
    return error;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return call([&](Runtime& runtime, Lock&) {
    const cudaError_t error = runtime.check(stream);
    if (error == cudaSuccess) {
      *flags = stream->flags;
    }
    return error;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = kLeastPriority;
  *greatest = kGreatestPriority;
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = runtime.check(stream); error != cudaSuccess) {
      return error;
    }
    Task task;
    task.type = cudaGraphNodeTypeHost;
    task.name = "a host function";
    task.run = [function, data] {
      function(data);
      return cudaSuccess;
    };
    return runtime.submit(lock, *stream, std::move(task));
  });
}

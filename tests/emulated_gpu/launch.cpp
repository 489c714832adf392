#include <algorithm>
#include <cstdint>
#include <utility>

#include "block.h"
#include "emulated_gpu.h"
#include "runtime.h"

// Functions that queue kernels, and hooks for tests.

namespace emulated_gpu {

namespace detail {

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> body) {
  constexpr unsigned kMaxThreads = 1024;
  constexpr unsigned kMaxThreadsZ = 64;
  constexpr unsigned kMaxGridYZ = 65535;
  constexpr unsigned kMaxGridX = 2147483647;
  constexpr std::size_t kDefaultShared = 48 << 10;
  return call([&](Runtime& runtime, Lock& lock) {
    const dim3& grid = config.gridDim;
    const dim3& block = config.blockDim;
    const bool empty = grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0;
    const bool too_many = block.x > kMaxThreads || block.y > kMaxThreads || block.z > kMaxThreadsZ ||
                          static_cast<std::uint64_t>(block.x) * block.y * block.z > kMaxThreads;
    if (empty || too_many || grid.x > kMaxGridX || grid.y > kMaxGridYZ || grid.z > kMaxGridYZ) {
      return cudaErrorInvalidConfiguration;
    }
    const auto allowed = runtime.max_dynamic_shared.find(kernel);
    if (config.dynamicSmemBytes > (allowed == runtime.max_dynamic_shared.end()
                                       ? kDefaultShared
                                       : std::max(kDefaultShared, static_cast<std::size_t>(allowed->second)))) {
      return cudaErrorInvalidValue;
    }
    for (unsigned i = 0; i < config.numAttrs; ++i) {
      const bool unknown =
          (config.attrs[i].id == cudaLaunchAttributeCooperative && config.attrs[i].val.cooperative != 0) ||
          config.attrs[i].id == cudaLaunchAttributeClusterDimension;
      if (unknown) {
        return cudaErrorNotSupported;  // because blocks run one after another
      }
    }
    if (const cudaError_t error = runtime.check(config.stream); error != cudaSuccess) {
      return error;
    }
    if (config.stream->device != &runtime.current()) {
      return cudaErrorInvalidResourceHandle;
    }
    if (runtime.lacks_memory("cudaLaunchKernel")) {
      return cudaErrorMemoryAllocation;
    }
    Launch launch{symbol_name(kernel), grid, block, config.dynamicSmemBytes, std::move(body)};
    Task task;
    task.type = cudaGraphNodeTypeKernel;
    task.name = launch.name;
    task.devices = config.stream->device->reach();
    task.run = [launch = std::move(launch)] { return run_kernel(launch); };
    return runtime.submit(lock, *config.stream, std::move(task));
  });
}

}  // namespace detail

namespace {

detail::Task library_kernel(const char* name, unsigned devices, std::function<void()> run) {
  detail::Task task;
  task.type = cudaGraphNodeTypeKernel;
  task.name = name;
  task.devices = devices;
  task.run = [run = std::move(run)] {
    run();
    return cudaSuccess;
  };
  return task;
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const char* name, std::function<void()> task) {
  using namespace detail;
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = runtime.check(stream); error != cudaSuccess) {
      return error;
    }
    return runtime.submit(lock, *stream, library_kernel(name, stream->device->reach(), std::move(task)));
  });
}

cudaError_t enqueue_when(cudaStream_t stream, const char* name, std::function<bool()> ready,
                         std::function<void()> task) {
  using namespace detail;
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = runtime.check(stream); error != cudaSuccess) {
      return error;
    }
    if (stream->capture != nullptr) {
      return cudaErrorStreamCaptureUnsupported;
    }
    Task queued = library_kernel(name, (1U << runtime.devices.size()) - 1, std::move(task));
    queued.ready = std::move(ready);
    return runtime.submit(lock, *stream, std::move(queued));
  });
}

std::size_t allocated_bytes(int device) {
  detail::Runtime& runtime = detail::Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.devices.at(static_cast<std::size_t>(device))->arena.allocated();
}

std::size_t pending_tasks() {
  detail::Runtime& runtime = detail::Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  std::size_t count = 0;
  for (const auto& device : runtime.devices) {
    for (const auto& stream : device->streams) {
      count += stream->queue.size();
    }
  }
  return count;
}

KernelLog::KernelLog() {
  detail::Runtime& runtime = detail::Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  runtime.kernel_log.emplace();
}

KernelLog::~KernelLog() {
  detail::Runtime& runtime = detail::Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  runtime.kernel_log.reset();
}

std::vector<std::string> KernelLog::names() const {
  detail::Runtime& runtime = detail::Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  return *runtime.kernel_log;
}

void fail_next(cudaError_t error, const char* kernel_name) {
  detail::Runtime& runtime = detail::Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  runtime.planned_error = error;
  runtime.planned_kernel = kernel_name;
}

void need_memory(const char* call, std::size_t bytes) {
  detail::Runtime& runtime = detail::Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  runtime.hungry_call = call;
  runtime.hungry_bytes = bytes;
}

bool lacks_memory(const char* call) {
  detail::Runtime& runtime = detail::Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.lacks_memory(call);
}

void reset() {
  detail::Runtime& runtime = detail::Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  runtime.planned_error = cudaSuccess;
  runtime.hungry_bytes = 0;
  runtime.sticky = cudaSuccess;
  runtime.drop_tasks();
  detail::last_error = cudaSuccess;
}

}  // namespace emulated_gpu

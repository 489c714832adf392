#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "capture.h"
#include "runtime.h"

// Functions for device memory.

using emulated_gpu::detail::Allocation;
using emulated_gpu::detail::call;
using emulated_gpu::detail::Device;
using emulated_gpu::detail::forbid_in_capture;
using emulated_gpu::detail::HostMemory;
using emulated_gpu::detail::Lock;
using emulated_gpu::detail::Runtime;
using emulated_gpu::detail::Task;

namespace {

// Frees on other streams may still be queued. Run these before reporting that memory is exhausted.
void* allocate(Runtime& runtime, Lock& lock, Device& device, std::size_t size, CUmemPoolHandle_st* pool) {
  void* memory = device.arena.allocate(size, pool);
  if (memory == nullptr) {
    runtime.finish(lock, device);
    memory = device.arena.allocate(size, pool);
  }
  if (memory != nullptr && pool != nullptr) {
    pool->used += size;
    pool->high = std::max(pool->high, pool->used);
  }
  return memory;
}

void release(Device& device, void* memory) {
  const Allocation& allocation = *device.arena.find(memory);
  if (allocation.pool != nullptr) {
    static_cast<CUmemPoolHandle_st*>(allocation.pool)->used -= allocation.size;
  }
  device.arena.release(memory);
}

// Returns the allocation that begins at `memory`, unless it has been freed.
Allocation* find_to_free(Device* device, void* memory) {
  Allocation* allocation = device == nullptr ? nullptr : device->arena.find(memory);
  const bool valid = allocation != nullptr && device->arena.begin_of(memory) == memory && !allocation->freeing;
  return valid ? allocation : nullptr;
}

}  // namespace

cudaError_t cudaMalloc(void** memory, size_t size) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = forbid_in_capture(runtime); error != cudaSuccess) {
      return error;
    }
    if (memory == nullptr) {
      return cudaErrorInvalidValue;
    }
    *memory = nullptr;
    if (size == 0) {
      return cudaSuccess;
    }
    Device& device = runtime.current();
    *memory = allocate(runtime, lock, device, size, nullptr);
    if (*memory == nullptr) {
      return cudaErrorMemoryAllocation;
    }
    device.arena.spoil(*memory);
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* memory) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = forbid_in_capture(runtime); error != cudaSuccess) {
      return error;
    }
    if (memory == nullptr) {
      return cudaSuccess;
    }
    Device* device = runtime.device_of(memory);
    if (find_to_free(device, memory) == nullptr) {
      return cudaErrorInvalidValue;
    }
    runtime.finish(lock, *device);
    if (find_to_free(device, memory) != nullptr) {
      release(*device, memory);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMallocFromPoolAsync(void** memory, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = runtime.check(stream); error != cudaSuccess) {
      return error;
    }
    if (const cudaError_t error = forbid_in_capture(*stream); error != cudaSuccess) {
      return error;
    }
    if (memory == nullptr || pool == nullptr) {
      return cudaErrorInvalidValue;
    }
    *memory = nullptr;
    if (size == 0) {
      return cudaSuccess;
    }
    Device& device = *pool->device;
    void* address = allocate(runtime, lock, device, size, pool);
    if (address == nullptr) {
      return cudaErrorMemoryAllocation;
    }
    *memory = address;
    Task task;
    task.type = cudaGraphNodeTypeMemAlloc;
    task.name = "cudaMallocAsync";
    task.locked = true;
    task.run = [&device, address] {
      device.arena.spoil(address);
      return cudaSuccess;
    };
    return runtime.submit(lock, *stream, std::move(task));
  });
}

cudaError_t cudaMallocAsync(void** memory, size_t size, cudaStream_t stream) {
  cudaMemPool_t pool = nullptr;
  const cudaError_t error = call([&](Runtime& runtime, Lock&) {
    const cudaError_t valid = runtime.check(stream);
    pool = valid == cudaSuccess ? &stream->device->default_pool : nullptr;
    return valid;
  });
  return error != cudaSuccess ? error : cudaMallocFromPoolAsync(memory, size, pool, stream);
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = runtime.check(stream); error != cudaSuccess) {
      return error;
    }
    if (const cudaError_t error = forbid_in_capture(*stream); error != cudaSuccess) {
      return error;
    }
    if (memory == nullptr) {
      return cudaSuccess;
    }
    Device* device = runtime.device_of(memory);
    Allocation* allocation = find_to_free(device, memory);
    if (allocation == nullptr) {
      return cudaErrorInvalidValue;
    }
    allocation->freeing = true;
    Task task;
    task.type = cudaGraphNodeTypeMemFree;
    task.name = "cudaFreeAsync";
    task.locked = true;
    task.run = [device, memory] {
      release(*device, memory);
      return cudaSuccess;
    };
    return runtime.submit(lock, *stream, std::move(task));
  });
}

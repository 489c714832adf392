#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "capture.h"
#include "runtime.h"

// Page-locked host memory: ordinary memory whose blocks are registered.

using emulated_gpu::detail::call;
using emulated_gpu::detail::forbid_in_capture;
using emulated_gpu::detail::HostMemory;
using emulated_gpu::detail::Lock;
using emulated_gpu::detail::Runtime;

namespace {

constexpr std::size_t kPage = 4096;

// Returns the block that contains `memory`.
const std::pair<const char* const, HostMemory>* find(const Runtime& runtime, const void* memory) {
  const auto* byte = static_cast<const char*>(memory);
  const auto next = runtime.host_memory.upper_bound(byte);
  if (next == runtime.host_memory.begin()) {
    return nullptr;
  }
  const auto& block = *std::prev(next);
  return static_cast<std::size_t>(byte - block.first) < block.second.size ? &block : nullptr;
}

void finish_all(Runtime& runtime, Lock& lock) {
  for (const auto& device : runtime.devices) {
    runtime.finish(lock, *device);
  }
}

}  // namespace

cudaError_t cudaHostAlloc(void** memory, size_t size, unsigned flags) {
  return call([&](Runtime& runtime, Lock&) {
    constexpr unsigned kKnown = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if (memory == nullptr || (flags & ~kKnown) != 0) {
      return cudaErrorInvalidValue;
    }
    if (const cudaError_t error = forbid_in_capture(runtime); error != cudaSuccess) {
      return error;
    }
    *memory = nullptr;
    if (size == 0) {
      return cudaSuccess;
    }
    if (posix_memalign(memory, kPage, size) != 0) {
      return cudaErrorMemoryAllocation;
    }
    std::memset(*memory, 0xFB, size);
    runtime.host_memory[static_cast<char*>(*memory)] = HostMemory{size, false};
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** memory, size_t size) { return cudaHostAlloc(memory, size, cudaHostAllocDefault); }

cudaError_t cudaFreeHost(void* memory) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = forbid_in_capture(runtime); error != cudaSuccess) {
      return error;
    }
    if (memory == nullptr) {
      return cudaSuccess;
    }
    const auto* block = find(runtime, memory);
    if (block == nullptr || block->first != memory || block->second.registered) {
      return cudaErrorInvalidValue;
    }
    finish_all(runtime, lock);
    runtime.host_memory.erase(static_cast<char*>(memory));
    std::free(memory);
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* memory, size_t size, unsigned) {
  return call([&](Runtime& runtime, Lock&) {
    if (memory == nullptr || size == 0 || runtime.device_of(memory) != nullptr) {
      return cudaErrorInvalidValue;
    }
    const auto* begin = static_cast<const char*>(memory);
    const auto next = runtime.host_memory.lower_bound(begin);
    const bool overlaps =
        find(runtime, memory) != nullptr || (next != runtime.host_memory.end() && next->first < begin + size);
    if (overlaps) {
      return cudaErrorHostMemoryAlreadyRegistered;
    }
    runtime.host_memory[begin] = HostMemory{size, true};
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* memory) {
  return call([&](Runtime& runtime, Lock& lock) {
    const auto* block = find(runtime, memory);
    if (block == nullptr || block->first != memory || !block->second.registered) {
      return cudaErrorHostMemoryNotRegistered;
    }
    finish_all(runtime, lock);
    runtime.host_memory.erase(static_cast<char*>(memory));
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  return call([&](Runtime& runtime, Lock&) {
    if (attributes == nullptr) {
      return cudaErrorInvalidValue;
    }
    *attributes = cudaPointerAttributes{};
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    if (auto* device = runtime.device_of(memory); device != nullptr) {
      if (device->arena.find(memory) == nullptr) {
        return cudaErrorInvalidValue;
      }
      attributes->type = cudaMemoryTypeDevice;
      attributes->device = device->index;
      attributes->devicePointer = const_cast<void*>(memory);
    } else if (find(runtime, memory) != nullptr) {
      attributes->type = cudaMemoryTypeHost;
      attributes->device = runtime.current().index;
      attributes->devicePointer = const_cast<void*>(memory);
      attributes->hostPointer = const_cast<void*>(memory);
    }
    return cudaSuccess;
  });
}

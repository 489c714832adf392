#include <cstdlib>
#include <cstring>

#include "capture.h"
#include "device_limits.h"
#include "runtime.h"

// Functions for devices and errors.

using namespace emulated_gpu::detail::limits;  // NOLINT(google-build-using-namespace)
using emulated_gpu::detail::call;
using emulated_gpu::detail::Device;
using emulated_gpu::detail::forbid_in_capture;
using emulated_gpu::detail::Lock;
using emulated_gpu::detail::Runtime;

namespace {

bool has(const Runtime& runtime, int device) {
  return device >= 0 && static_cast<std::size_t>(device) < runtime.devices.size();
}

bool peers_possible() {
  const char* text = std::getenv("EMULATED_GPU_PEERS");
  return text == nullptr || std::strcmp(text, "0") != 0;
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return call([count](Runtime& runtime, Lock&) {
    *count = static_cast<int>(runtime.devices.size());
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call([&](Runtime& runtime, Lock&) {
    if (properties == nullptr || !has(runtime, device)) {
      return properties == nullptr ? cudaErrorInvalidValue : cudaErrorInvalidDevice;
    }
    cudaDeviceProp p{};
    std::strcpy(p.name, "Emulated GPU");
    p.uuid.bytes[0] = static_cast<char>(device + 1);
    p.totalGlobalMem = runtime.devices[static_cast<std::size_t>(device)]->arena.size();
    p.sharedMemPerBlock = kShared;
    p.sharedMemPerBlockOptin = kSharedOptIn;
    p.sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
    p.reservedSharedMemPerBlock = kSharedReserved;
    p.regsPerBlock = kRegisters;
    p.regsPerMultiprocessor = kRegisters;
    p.warpSize = 32;
    p.memPitch = 2147483647;
    p.maxThreadsPerBlock = kThreads;
    p.maxThreadsDim[0] = kThreads;
    p.maxThreadsDim[1] = kThreads;
    p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = kMaxGridX;
    p.maxGridSize[1] = kMaxGridYZ;
    p.maxGridSize[2] = kMaxGridYZ;
    p.totalConstMem = 64 << 10;
    p.major = 9;
    p.minor = 0;
    p.textureAlignment = 512;
    p.multiProcessorCount = kMultiprocessors;
    p.maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
    p.maxBlocksPerMultiProcessor = kBlocksPerMultiprocessor;
    p.canMapHostMemory = 1;
    p.concurrentKernels = 1;
    p.pciBusID = device + 1;
    p.asyncEngineCount = 3;
    p.unifiedAddressing = 1;
    p.memoryBusWidth = 5120;
    p.l2CacheSize = kL2;
    p.streamPrioritiesSupported = 1;
    p.memoryPoolsSupported = 1;
    p.hostRegisterSupported = 1;
    *properties = p;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call([&](Runtime& runtime, Lock&) {
    if (value == nullptr || !has(runtime, device)) {
      return value == nullptr ? cudaErrorInvalidValue : cudaErrorInvalidDevice;
    }
    switch (attribute) {
      case cudaDevAttrMaxThreadsPerBlock:
      case cudaDevAttrMaxBlockDimX:
      case cudaDevAttrMaxBlockDimY: *value = kThreads; break;
      case cudaDevAttrMaxBlockDimZ: *value = 64; break;
      case cudaDevAttrMaxGridDimX: *value = kMaxGridX; break;
      case cudaDevAttrMaxGridDimY:
      case cudaDevAttrMaxGridDimZ: *value = kMaxGridYZ; break;
      case cudaDevAttrMaxSharedMemoryPerBlock: *value = kShared; break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = kSharedOptIn; break;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = kSharedPerMultiprocessor; break;
      case cudaDevAttrReservedSharedMemoryPerBlock: *value = kSharedReserved; break;
      case cudaDevAttrWarpSize: *value = 32; break;
      case cudaDevAttrMaxRegistersPerBlock:
      case cudaDevAttrMaxRegistersPerMultiprocessor: *value = kRegisters; break;
      case cudaDevAttrMultiProcessorCount: *value = kMultiprocessors; break;
      case cudaDevAttrMaxThreadsPerMultiProcessor: *value = kThreadsPerMultiprocessor; break;
      case cudaDevAttrMaxBlocksPerMultiprocessor: *value = kBlocksPerMultiprocessor; break;
      case cudaDevAttrL2CacheSize: *value = kL2; break;
      case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
      case cudaDevAttrPciBusId: *value = device + 1; break;
      case cudaDevAttrAsyncEngineCount: *value = 3; break;
      case cudaDevAttrConcurrentKernels:
      case cudaDevAttrCanMapHostMemory:
      case cudaDevAttrUnifiedAddressing:
      case cudaDevAttrStreamPrioritiesSupported:
      case cudaDevAttrHostRegisterSupported:
      case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
      case cudaDevAttrComputeCapabilityMinor:
      case cudaDevAttrPciDeviceId:
      case cudaDevAttrPciDomainId:
      case cudaDevAttrIntegrated:
      case cudaDevAttrComputeMode:
      case cudaDevAttrEccEnabled:
      case cudaDevAttrManagedMemory:
      case cudaDevAttrConcurrentManagedAccess:
      case cudaDevAttrPageableMemoryAccess:
      case cudaDevAttrCooperativeLaunch:
      case cudaDevAttrClusterLaunch: *value = 0; break;
      default: return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  emulated_gpu::detail::last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  if (emulated_gpu::detail::in_forked_child()) {
    return emulated_gpu::detail::last_error;
  }
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.sticky != cudaSuccess ? runtime.sticky : emulated_gpu::detail::last_error;
}

cudaError_t cudaSetDevice(int device) {
  return call([device](Runtime& runtime, Lock&) {
    if (!has(runtime, device)) {
      return cudaErrorInvalidDevice;
    }
    emulated_gpu::detail::current_device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call([device](Runtime&, Lock&) {
    *device = emulated_gpu::detail::current_device;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* possible, int device, int peer) {
  return call([&](Runtime& runtime, Lock&) {
    if (!has(runtime, device) || !has(runtime, peer)) {
      return cudaErrorInvalidDevice;
    }
    *possible = device != peer && peers_possible() ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return call([&](Runtime& runtime, Lock&) {
    if (flags != 0 || !has(runtime, peer)) {
      return flags != 0 ? cudaErrorInvalidValue : cudaErrorInvalidDevice;
    }
    Device& device = runtime.current();
    if (device.index == peer) {
      return cudaErrorInvalidDevice;
    }
    if (!peers_possible()) {
      return cudaErrorPeerAccessUnsupported;
    }
    return device.peers.insert(peer).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call([](Runtime& runtime, Lock& lock) {
    Device& device = runtime.current();
    if (const cudaError_t error = forbid_in_capture(device); error != cudaSuccess) {
      return error;
    }
    runtime.finish(lock, device);
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&](Runtime& runtime, Lock&) {
    const auto& arena = runtime.current().arena;
    *free = arena.size() - arena.reserved();
    *total = arena.size();
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

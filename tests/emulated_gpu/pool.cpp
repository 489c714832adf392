#include <algorithm>

#include "runtime.h"

// Memory pools. Freed memory returns to the device at once.

using emulated_gpu::detail::call;
using emulated_gpu::detail::Lock;
using emulated_gpu::detail::Runtime;

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return call([&](Runtime& runtime, Lock&) {
    if (device < 0 || static_cast<std::size_t>(device) >= runtime.devices.size()) {
      return cudaErrorInvalidDevice;
    }
    *pool = &runtime.devices[static_cast<std::size_t>(device)]->default_pool;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return call([&](Runtime& runtime, Lock&) {
    if (pool == nullptr || properties == nullptr || properties->allocType != cudaMemAllocationTypePinned ||
        properties->location.type != cudaMemLocationTypeDevice || properties->location.id < 0 ||
        static_cast<std::size_t>(properties->location.id) >= runtime.devices.size()) {
      return cudaErrorInvalidValue;
    }
    auto made = std::make_unique<CUmemPoolHandle_st>();
    made->device = runtime.devices[static_cast<std::size_t>(properties->location.id)].get();
    *pool = made.get();
    runtime.pools.push_back(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return call([&](Runtime& runtime, Lock& lock) {
    const auto known = [pool](const auto& other) { return other.get() == pool; };
    if (std::none_of(runtime.pools.begin(), runtime.pools.end(), known)) {
      return cudaErrorInvalidValue;
    }
    runtime.finish(lock, *pool->device);
    if (pool->used != 0) {
      return cudaErrorInvalidValue;  // a real pool would wait for the last free
    }
    std::erase_if(runtime.pools, known);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  return call([pool](Runtime&, Lock&) { return pool == nullptr ? cudaErrorInvalidValue : cudaSuccess; });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call([&](Runtime&, Lock&) {
    if (pool == nullptr || value == nullptr) {
      return cudaErrorInvalidValue;
    }
    switch (attribute) {
      case cudaMemPoolReuseFollowEventDependencies:
      case cudaMemPoolReuseAllowOpportunistic:
      case cudaMemPoolReuseAllowInternalDependencies:
        pool->attributes[attribute] = static_cast<std::uint64_t>(*static_cast<int*>(value));
        return cudaSuccess;
      case cudaMemPoolAttrReleaseThreshold:
        pool->attributes[attribute] = *static_cast<std::uint64_t*>(value);
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:
      case cudaMemPoolAttrUsedMemHigh:
        if (*static_cast<std::uint64_t*>(value) != 0) {
          return cudaErrorInvalidValue;
        }
        pool->high = pool->used;
        return cudaSuccess;
      default: return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call([&](Runtime&, Lock&) {
    if (pool == nullptr || value == nullptr) {
      return cudaErrorInvalidValue;
    }
    switch (attribute) {
      case cudaMemPoolReuseFollowEventDependencies:
      case cudaMemPoolReuseAllowOpportunistic:
      case cudaMemPoolReuseAllowInternalDependencies:
        *static_cast<int*>(value) =
            pool->attributes.contains(attribute) ? static_cast<int>(pool->attributes[attribute]) : 1;
        return cudaSuccess;
      case cudaMemPoolAttrReleaseThreshold:
        *static_cast<std::uint64_t*>(value) = pool->attributes[attribute];
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemCurrent:
      case cudaMemPoolAttrUsedMemCurrent: *static_cast<std::uint64_t*>(value) = pool->used; return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:
      case cudaMemPoolAttrUsedMemHigh: *static_cast<std::uint64_t*>(value) = pool->high; return cudaSuccess;
      default: return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* descriptions, size_t count) {
  return call([&](Runtime& runtime, Lock&) {
    for (std::size_t i = 0; i < count; ++i) {
      const cudaMemAccessDesc& access = descriptions[i];
      if (pool == nullptr || access.location.type != cudaMemLocationTypeDevice || access.location.id < 0 ||
          static_cast<std::size_t>(access.location.id) >= runtime.devices.size()) {
        return cudaErrorInvalidValue;
      }
      // As with cudaDeviceEnablePeerAccess(), access is emulated per device, not per pool.
      if (access.location.id != pool->device->index) {
        auto& peers = runtime.devices[static_cast<std::size_t>(access.location.id)]->peers;
        if (access.flags == cudaMemAccessFlagsProtReadWrite) {
          peers.insert(pool->device->index);
        } else {
          peers.erase(pool->device->index);
        }
      }
    }
    return cudaSuccess;
  });
}

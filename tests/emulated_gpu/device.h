#pragma once

// CUDA's device language on a CPU. Force-include it (-include) where a .cu file is compiled as C++. A block runs on one
// OS thread, so `__shared__` is a thread_local, and constinit, because a GPU runs no constructor for it either. As on a
// GPU, a block finds garbage in it: here the values of the previous block.
//
// An alignment goes before it (`alignas(16) __shared__ float x[4]`), or is written as
// `__shared__ __align__(16) float x[4]`. Dynamic shared memory comes from emulated_gpu::dynamic_shared(). Functions
// that wait take the source location of their call, so that threads of a block which wait at different barriers are
// reported.

#include "device_math.h"

#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include "device_runtime.h"

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __shared__ constinit static thread_local
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

// A failed assertion ends the kernel with cudaErrorAssert instead of ending the program. <cassert> is included above
// and declares the function only once.
#if !defined(NDEBUG)
#define __assert_fail ::emulated_gpu::detail::assertion_failed
#endif

inline constexpr int warpSize = 32;

namespace emulated_gpu::detail {

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "a warp exchanges values of up to 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const void*>(&value), sizeof(T));
  return bits;
}

template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

}  // namespace emulated_gpu::detail

// Launches work like the template of cuda_runtime.h: an untyped function does the rest. Arguments are copied now.
template <class... Parameters, class... Arguments>
cudaError_t emulated_gpu_launch_kernel_ex(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                                          Arguments&&... arguments) {
  std::tuple<std::remove_cv_t<Parameters>...> copies(std::forward<Arguments>(arguments)...);
  return ::emulated_gpu::detail::launch(*config, reinterpret_cast<const void*>(kernel),
                                        [kernel, copies] { std::apply(kernel, copies); });
}
#define cudaLaunchKernelEx emulated_gpu_launch_kernel_ex

// Typed overloads that cuda_runtime.h declares for nvcc only.
template <class R, class... A>
cudaError_t cudaFuncSetAttribute(R (*kernel)(A...), cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class R, class... A>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, R (*kernel)(A...)) {
  return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}

using emulated_gpu_location = ::emulated_gpu::detail::Location;

inline void __syncthreads(const emulated_gpu_location& where = emulated_gpu_location::current()) {
  ::emulated_gpu::detail::barrier(::emulated_gpu::detail::Barrier::kPlain, 0, where);
}
inline int __syncthreads_count(int predicate, const emulated_gpu_location& where = emulated_gpu_location::current()) {
  return ::emulated_gpu::detail::barrier(::emulated_gpu::detail::Barrier::kCount, predicate, where);
}
inline int __syncthreads_and(int predicate, const emulated_gpu_location& where = emulated_gpu_location::current()) {
  return ::emulated_gpu::detail::barrier(::emulated_gpu::detail::Barrier::kAnd, predicate, where);
}
inline int __syncthreads_or(int predicate, const emulated_gpu_location& where = emulated_gpu_location::current()) {
  return ::emulated_gpu::detail::barrier(::emulated_gpu::detail::Barrier::kOr, predicate, where);
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFFU,
                       const emulated_gpu_location& where = emulated_gpu_location::current()) {
  ::emulated_gpu::detail::warp(::emulated_gpu::detail::Warp::kSync, mask, 0, 0, warpSize, where);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize,
              const emulated_gpu_location& where = emulated_gpu_location::current()) {
  namespace detail = ::emulated_gpu::detail;
  return detail::from_bits<T>(detail::warp(detail::Warp::kShuffle, mask, detail::to_bits(value), lane, width, where));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize,
                  const emulated_gpu_location& where = emulated_gpu_location::current()) {
  namespace detail = ::emulated_gpu::detail;
  return detail::from_bits<T>(
      detail::warp(detail::Warp::kShuffleXor, mask, detail::to_bits(value), lanes, width, where));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = warpSize,
                 const emulated_gpu_location& where = emulated_gpu_location::current()) {
  namespace detail = ::emulated_gpu::detail;
  return detail::from_bits<T>(
      detail::warp(detail::Warp::kShuffleUp, mask, detail::to_bits(value), static_cast<int>(lanes), width, where));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = warpSize,
                   const emulated_gpu_location& where = emulated_gpu_location::current()) {
  namespace detail = ::emulated_gpu::detail;
  return detail::from_bits<T>(
      detail::warp(detail::Warp::kShuffleDown, mask, detail::to_bits(value), static_cast<int>(lanes), width, where));
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const emulated_gpu_location& where = emulated_gpu_location::current()) {
  namespace detail = ::emulated_gpu::detail;
  return static_cast<unsigned>(detail::warp(detail::Warp::kBallot, mask, predicate != 0 ? 1 : 0, 0, warpSize, where));
}
inline int __any_sync(unsigned mask, int predicate,
                      const emulated_gpu_location& where = emulated_gpu_location::current()) {
  return static_cast<int>(__ballot_sync(mask, predicate, where) != 0);
}
inline int __all_sync(unsigned mask, int predicate,
                      const emulated_gpu_location& where = emulated_gpu_location::current()) {
  return static_cast<int>(__ballot_sync(mask, predicate, where) == mask);
}
// Returns only the calling lane: code must not rely on which other lanes happen to be active.
inline unsigned __activemask() {
  return 1U << ((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32U);
}

[[noreturn]] inline void __trap() { ::emulated_gpu::detail::fail_kernel(cudaErrorLaunchFailure, "__trap()"); }
inline void __nanosleep(unsigned) { ::emulated_gpu::detail::yield(); }

#include "device_functions.h"

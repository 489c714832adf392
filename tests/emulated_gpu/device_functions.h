#pragma once

// Part of device.h: arithmetic and atomics. The latter are atomic also for kernels of other devices and for the host.

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>

inline void __threadfence() { ::emulated_gpu::detail::fence(false); }
inline void __threadfence_block() { ::emulated_gpu::detail::fence(true); }
inline void __threadfence_system() { __threadfence(); }

namespace emulated_gpu::detail {

// Replaces *address by change(*address) and returns the old value.
template <class T, class Change>
T atomic_update(T* address, const Change& change) {
  std::atomic_ref<T> cell(*address);
  T old{};  // a guess, so that all accesses to the cell change it, like on a GPU
  while (!cell.compare_exchange_weak(old, change(old), std::memory_order_relaxed)) {
  }
  return old;
}

template <class T>
concept AtomicInteger = std::same_as<T, int> || std::same_as<T, unsigned> || std::same_as<T, unsigned long long>;
template <class T>
concept Addable = AtomicInteger<T> || std::same_as<T, float> || std::same_as<T, double>;

template <class T>
using Same = std::type_identity_t<T>;  // not deduced: the address determines T

}  // namespace emulated_gpu::detail

template <emulated_gpu::detail::Addable T>
T atomicAdd(T* address, emulated_gpu::detail::Same<T> value) {
  return emulated_gpu::detail::atomic_update(address, [value](T old) {
    if constexpr (std::is_same_v<T, int>) {
      return static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value));  // wraps around
    } else {
      return old + value;
    }
  });
}
// Counts up to `last`, then starts again at 0.
inline unsigned int atomicInc(unsigned int* address, unsigned int last) {
  return emulated_gpu::detail::atomic_update(address, [last](unsigned int old) { return old >= last ? 0 : old + 1; });
}
template <emulated_gpu::detail::AtomicInteger T>
T atomicMax(T* address, emulated_gpu::detail::Same<T> value) {
  return emulated_gpu::detail::atomic_update(address, [value](T old) { return std::max(old, value); });
}
template <emulated_gpu::detail::AtomicInteger T>
T atomicMin(T* address, emulated_gpu::detail::Same<T> value) {
  return emulated_gpu::detail::atomic_update(address, [value](T old) { return std::min(old, value); });
}
template <emulated_gpu::detail::AtomicInteger T>
T atomicOr(T* address, emulated_gpu::detail::Same<T> value) {
  return emulated_gpu::detail::atomic_update(address, [value](T old) { return old | value; });
}
template <emulated_gpu::detail::AtomicInteger T>
T atomicAnd(T* address, emulated_gpu::detail::Same<T> value) {
  return emulated_gpu::detail::atomic_update(address, [value](T old) { return old & value; });
}
template <class T>
  requires(emulated_gpu::detail::AtomicInteger<T> || std::is_same_v<T, float>)
T atomicExch(T* address, emulated_gpu::detail::Same<T> value) {
  return std::atomic_ref<T>(*address).exchange(value, std::memory_order_relaxed);
}
template <class T>
  requires(emulated_gpu::detail::AtomicInteger<T> || std::is_same_v<T, unsigned short>)
T atomicCAS(T* address, emulated_gpu::detail::Same<T> expected, emulated_gpu::detail::Same<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, value, std::memory_order_relaxed);
  return expected;
}

template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
T __ldcg(const T* address) {
  return *address;
}
template <class T>
T __ldcv(const T* address) {
  return *address;
}
template <class T>
void __stcs(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <class T>
void __stcg(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <class T>
void __stwt(T* address, std::type_identity_t<T> value) {
  *address = value;
}

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline float __uint_as_float(unsigned value) { return std::bit_cast<float>(value); }
inline float __int_as_float(int value) { return std::bit_cast<float>(value); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline double __longlong_as_double(long long value) { return std::bit_cast<double>(value); }

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<std::int64_t>(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(a) * b) >> 64);
}
inline int __popc(unsigned value) { return std::popcount(value); }
inline int __popcll(unsigned long long value) { return std::popcount(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }
inline int __clz(int value) { return std::countl_zero(static_cast<unsigned>(value)); }
inline int __clzll(long long value) { return std::countl_zero(static_cast<unsigned long long>(value)); }
inline unsigned __brev(unsigned value) {
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) {
    result |= (value >> i & 1U) << (31 - i);
  }
  return result;
}

// C's own mathematical functions come from <cmath>, by the names of device_math.h. Names that a C library may define in
// future are macros.
inline float emulated_gpu_rsqrtf(float x) { return emulated_gpu::detail::reciprocal_root(x); }
inline double emulated_gpu_rsqrt(double x) { return emulated_gpu::detail::reciprocal_root(x); }
inline float emulated_gpu_rsqrt(float x) { return emulated_gpu::detail::reciprocal_root(x); }
#define rsqrtf emulated_gpu_rsqrtf
#define rsqrt emulated_gpu_rsqrt
inline float __fdividef(float x, float y) { return emulated_gpu::detail::fast_quotient(x, y); }
inline float __fdiv_rn(float x, float y) { return x / y; }
// Operations that the compiler must not join to one with a single rounding.
inline float __fadd_rn(float x, float y) { return __builtin_assoc_barrier(x) + __builtin_assoc_barrier(y); }
inline float __fsub_rn(float x, float y) { return __builtin_assoc_barrier(x) - __builtin_assoc_barrier(y); }
inline float emulated_gpu_fmul_rn(float x, float y) { return __builtin_assoc_barrier(x * y); }
inline double __dadd_rn(double x, double y) { return __builtin_assoc_barrier(x) + __builtin_assoc_barrier(y); }
inline double emulated_gpu_dmul_rn(double x, double y) { return __builtin_assoc_barrier(x * y); }
// Macros, by which code for both sides recognises device code.
#define __fmul_rn emulated_gpu_fmul_rn
#define __dmul_rn emulated_gpu_dmul_rn
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }
inline float __frcp_rn(float x) { return 1.0F / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline float __saturatef(float x) { return x > 0.0F ? std::min(x, 1.0F) : 0.0F; }
// The C library uses some of these names itself.
inline float emulated_gpu_expf(float x) { return emulated_gpu::detail::fast_exp(x); }
inline float emulated_gpu_exp10f(float x) { return std::pow(10.0F, x); }
inline float emulated_gpu_logf(float x) { return std::log(x); }
inline float emulated_gpu_log2f(float x) { return std::log2(x); }
inline float emulated_gpu_log10f(float x) { return std::log10(x); }
inline float emulated_gpu_sinf(float x) { return std::sin(x); }
inline float emulated_gpu_cosf(float x) { return std::cos(x); }
inline float emulated_gpu_tanf(float x) { return std::tan(x); }
inline float emulated_gpu_powf(float x, float y) { return std::pow(x, y); }
#define __expf emulated_gpu_expf
#define __exp10f emulated_gpu_exp10f
#define __logf emulated_gpu_logf
#define __log2f emulated_gpu_log2f
#define __log10f emulated_gpu_log10f
#define __sinf emulated_gpu_sinf
#define __cosf emulated_gpu_cosf
#define __tanf emulated_gpu_tanf
#define __powf emulated_gpu_powf

inline int min(int a, int b) { return b < a ? b : a; }
inline unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
inline long min(long a, long b) { return b < a ? b : a; }
inline unsigned long min(unsigned long a, unsigned long b) { return b < a ? b : a; }
inline long long min(long long a, long long b) { return b < a ? b : a; }
inline unsigned long long min(unsigned long long a, unsigned long long b) { return b < a ? b : a; }
inline float min(float a, float b) { return std::fmin(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline long max(long a, long b) { return a < b ? b : a; }
inline unsigned long max(unsigned long a, unsigned long b) { return a < b ? b : a; }
inline long long max(long long a, long long b) { return a < b ? b : a; }
inline unsigned long long max(unsigned long long a, unsigned long long b) { return a < b ? b : a; }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }

inline long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

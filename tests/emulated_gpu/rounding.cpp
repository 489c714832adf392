#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "block.h"
#include "device_runtime.h"
#include "emulated_gpu.h"

#define EMULATED_GPU_DEFINES_MATH
#include "device_math.h"

// The mathematical functions of device code. CUDA's are right to one or two units in the last place, and the C
// library's to half a unit or little more: with EMULATED_GPU_ULPS, results move by up to that many units. Arguments
// alone decide the direction, so neighbours move differently and a repeated call gives the same result. Host code gets
// the C library's results.

namespace emulated_gpu {

namespace {

std::atomic<int>& ulps() {
  static std::atomic<int> ulps = [] {
    const char* text = std::getenv("EMULATED_GPU_ULPS");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return ulps;
}

constexpr std::uint64_t mixed(std::uint64_t bits) {  // splitmix64
  bits += 0x9E3779B97F4A7C15U;
  bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ bits >> 27) * 0x94D049BB133111EBU;
  return bits ^ bits >> 31;
}

// Ignores the sign, like CUDA's odd and even functions.
template <class T>
std::uint64_t hash_of(T x, std::uint64_t hash = 0) {
  return mixed(hash ^ std::bit_cast<std::uint64_t>(static_cast<double>(std::abs(x))));
}

// Moves a result by `most` units at most. Zeros, infinities and NaN stay: CUDA promises them where they are exact.
template <class T>
T moved(T result, std::uint64_t hash, int most) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  if (!std::isnormal(result)) {
    return result;
  }
  const auto choices = static_cast<std::uint64_t>(2 * most + 1);
  const auto step = static_cast<Bits>(hash % choices) - static_cast<Bits>(most);
  const T neighbour = std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(result) + step));
  return std::isnormal(neighbour) ? neighbour : result;
}

// The largest magnitude of a function's results. CUDA's implementations keep within it.
constexpr double kNone = std::numeric_limits<double>::infinity();
enum class Function { exp, exp2, expm1, log, log2, log1p, sin, cos, tanh, erf, erfc, pow, quotient, rsqrt };
constexpr double bound_of(Function function) {
  switch (function) {
    case Function::sin:
    case Function::cos:
    case Function::tanh:
    case Function::erf: return 1;
    case Function::erfc: return 2;
    default: return kNone;
  }
}

template <class T>
T moved_within(Function function, T result, std::uint64_t hash, int most) {
  const auto bound = static_cast<T>(bound_of(function));
  return std::clamp(moved(result, mixed(hash + static_cast<std::uint64_t>(function)), most), -bound, bound);
}

int most_now() {
  const int most = ulps().load(std::memory_order_relaxed);
  return most > 0 && detail::in_kernel() ? most : 0;
}

template <class T>
T unary(Function function, T x, T result) {
  const int most = most_now();
  // f(0) is exact: exp(0) is 1.
  return most == 0 || x == 0 || std::isnan(result) ? result : moved_within(function, result, hash_of(x), most);
}

template <class T>
T power(T x, T y) {
  const T result = std::pow(x, y);
  const int most = most_now();
  return most == 0 || x == 1 || y == 0 || std::isnan(result)
             ? result
             : moved_within(Function::pow, result, hash_of(y, hash_of(x)), most);
}

}  // namespace

void move_results(int most) { ulps() = most; }

namespace detail {

// Divisors beyond 2^126 give 0, and NaN for an infinite x.
float fast_quotient(float x, float y) {
  if (std::abs(y) > 0x1p126F && std::isfinite(y)) {
    return std::isinf(x) ? std::numeric_limits<float>::quiet_NaN() : std::copysign(0.0F, x) * std::copysign(1.0F, y);
  }
  const float result = x / y;
  const int most = most_now();
  return most == 0 || std::isnan(result) ? result
                                         : moved_within(Function::quotient, result, hash_of(y, hash_of(x)), most);
}

// The error of the fast exponential grows with |x|.
float fast_exp(float x) {
  const float result = std::exp(x);
  return most_now() == 0 || x == 0 || std::isnan(result)
             ? result
             : moved_within(Function::exp, result, hash_of(x), 2 + static_cast<int>(1.173F * std::abs(x)));
}

float reciprocal_root(float x) { return unary(Function::rsqrt, x, 1.0F / std::sqrt(x)); }
double reciprocal_root(double x) { return unary(Function::rsqrt, x, 1.0 / std::sqrt(x)); }

}  // namespace detail

}  // namespace emulated_gpu

using emulated_gpu::Function;

#define EMULATED_GPU_DEFINE(name)                                                                            \
  double emulated_gpu_libm_##name(double x) { return emulated_gpu::unary(Function::name, x, std::name(x)); } \
  float emulated_gpu_libm_##name##f(float x) { return emulated_gpu::unary(Function::name, x, std::name(x)); }
extern "C" {
EMULATED_GPU_MATH(EMULATED_GPU_DEFINE)
double emulated_gpu_libm_pow(double x, double y) { return emulated_gpu::power(x, y); }
float emulated_gpu_libm_powf(float x, float y) { return emulated_gpu::power(x, y); }
}
#undef EMULATED_GPU_DEFINE

#pragma once

#include <cstdint>
#include <vector>

#include <tandem/core/dtype.h>

#include <tandem/core/check.h>

#include "cuda/device_array.h"
#include "kernels/arrays.h"

// Arrays on which a CPU kernel and a GPU kernel work, each on a copy of its own.

namespace tandem::test {

/// Calls `body.operator()<T>()` for every floating type.
template <class Body>
void for_floating_types(Body&& body) {
  body.template operator()<float>();
  body.template operator()<double>();
  body.template operator()<BFloat16>();
  body.template operator()<Float16>();
}

/// The largest distance allowed between two kernels in T.
template <class T>
constexpr double rounding() {
  return std::is_same_v<T, double> ? 1e-13 : std::is_same_v<T, float> ? 1e-6 : std::is_same_v<T, Float16> ? 1e-3 : 8e-3;
}

/// Values on both sides. On the GPU they start `offset` elements after an aligned address.
template <class T>
class Both {
 public:
  explicit Both(std::vector<T> values, std::size_t offset = 0) : host_(std::move(values)), device_(host_, offset) {}

  T* host() { return host_.data(); }
  T* device() { return device_.data(); }
  const std::vector<T>& values() const { return host_; }
  std::vector<T> download() const { return device_.download(); }
  /// The distance between the GPU's values and the CPU's.
  double distance(double least_scale = 0) const {
    const std::vector<T> got = device_.download();
    std::vector<double> a(got.begin(), got.end());
    std::vector<double> b(host_.begin(), host_.end());
    return difference(a, b, least_scale);
  }

 private:
  std::vector<T> host_;
  DeviceArray<T> device_;
};

/// `count` values from [low, high).
template <class T>
std::vector<T> values_between(Rng& rng, std::int64_t count, double low = -1, double high = 1) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) {
    value = static_cast<T>(static_cast<ComputeType<T>>(real_between(rng, low, high)));
  }
  return values;
}

}  // namespace tandem::test

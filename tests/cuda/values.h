#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/dtype.h>

#include "cuda/device_array.h"
#include "kernels/arrays.h"

// Arrays for one kernel that runs on two devices: on the host for the CPU, and a copy for the GPU.

namespace tandem::test {

/// The type that arrays use for T: a std::vector of bool would hold bits.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

/// Small random numbers, on the host and on the GPU.
template <class T>
class Twin {
 public:
  Twin(Rng& rng, std::int64_t count, double low = std::is_unsigned_v<T> ? 0 : -3, double high = 3)
      : host(random_values<T>(rng, count, low, high)), device_(host) {}
  explicit Twin(std::vector<Stored<T>> values) : host(std::move(values)), device_(host) {}

  T* on_host(std::int64_t offset = 0) { return reinterpret_cast<T*>(host.data()) + offset; }
  T* on_gpu(std::int64_t offset = 0) { return reinterpret_cast<T*>(device_.data()) + offset; }
  kernels::Operand operand_on_host(const Layout& layout) { return operand(on_host(), layout); }
  kernels::Operand operand_on_gpu(const Layout& layout) { return operand(on_gpu(), layout); }

  /// Succeeds if both hold the same bits. NaNs count as equal.
  testing::AssertionResult agree() const {
    const std::vector<Stored<T>> got = device_.download();
    for (std::size_t i = 0; i < host.size(); ++i) {
      if (std::memcmp(&got[i], &host[i], sizeof(T)) != 0 && (got[i] == got[i] || host[i] == host[i])) {
        return testing::AssertionFailure() << "element " << i << ": " << static_cast<double>(got[i]) << " on the GPU, "
                                           << static_cast<double>(host[i]) << " on the CPU";
      }
    }
    return testing::AssertionSuccess();
  }
  std::vector<Stored<T>> download() const { return device_.download(); }

  std::vector<Stored<T>> host;

 private:
  template <class U>
  static std::vector<Stored<U>> random_values(Rng& rng, std::int64_t count, double low, double high) {
    std::vector<Stored<U>> values(static_cast<std::size_t>(count));
    for (auto& value : values) {
      value = static_cast<Stored<U>>(static_cast<U>(static_cast<float>(real_between(rng, low, high))));
    }
    return values;
  }
  static kernels::Operand operand(T* data, const Layout& layout) {
    kernels::Operand operand{.data = data + layout.offset};
    for (int dim = 0; dim < layout.strides.ndim(); ++dim) {
      operand.strides[dim] = layout.strides[dim];
    }
    return operand;
  }

  DeviceArray<Stored<T>> device_;
};

/// Calls body.operator()<T>() for every element type.
template <class Body>
void for_every_type(Body&& body) {
  body.template operator()<float>();
  body.template operator()<double>();
  body.template operator()<BFloat16>();
  body.template operator()<Float16>();
  body.template operator()<std::int64_t>();
  body.template operator()<std::int32_t>();
  body.template operator()<std::uint8_t>();
  body.template operator()<bool>();
}

}  // namespace tandem::test

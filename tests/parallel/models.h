#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

namespace tandem::test {

/// A small version of the sample's model.
struct Mlp : nn::Module<Mlp> {
  nn::Linear fc1 = child("fc1", nn::Linear(6, 8));
  nn::Linear fc2 = child("fc2", nn::Linear(8, 5));
  nn::Linear fc3 = child("fc3", nn::Linear(5, 3));
  Tensor forward(const Tensor& x) const { return fc3(relu(fc2(relu(fc1(x))))); }
};

/// A model with running statistics and random numbers.
struct NormedMlp : nn::Module<NormedMlp> {
  nn::Linear first = child("first", nn::Linear(6, 9));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(9));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.3));
  nn::Linear second = child("second", nn::Linear(9, 3));
  Tensor forward(const Tensor& x) const { return second(dropout(relu(norm(first(x))))); }
};

/// A model with fixed weights.
template <class M = Mlp>
M seeded(DType dtype = DType::f64) {
  manual_seed(5);
  M model;
  model.to(dtype);
  return model;
}

/// Fixed inputs [rows, 6] and classes for an Mlp.
struct Batch {
  Tensor x, y;
};
inline Batch batch_of(std::int64_t rows, DType dtype = DType::f64) {
  manual_seed(11);
  return {randn({rows, 6}, {.dtype = dtype}), randint(0, 3, {rows})};
}

/// max|a - b| / max|b|, the architecture's measure for comparing results.
inline double difference(const Tensor& a, const Tensor& b) {
  const auto x = a.to("cpu:0").to(DType::f64).to_vector<double>();
  const auto y = b.to("cpu:0").to(DType::f64).to_vector<double>();
  EXPECT_EQ(a.shape(), b.shape());
  double most = 0;
  double scale = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    most = std::max(most, std::abs(x[i] - y[i]));
    scale = std::max(scale, std::abs(y[i]));
  }
  return scale > 0 ? most / scale : most;
}

inline std::vector<Device> cpus(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    devices.emplace_back(DeviceType::cpu, i);
  }
  return devices;
}

}  // namespace tandem::test

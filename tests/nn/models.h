#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <tandem/autograd/ops.h>
#include <tandem/nn/linear.h>
#include <tandem/nn/module.h>
#include <tandem/tensor/factories.h>

namespace tandem::test {

/// The smallest model with two layers.
struct Mlp : nn::Module<Mlp> {
  explicit Mlp(std::int64_t in = 4, std::int64_t hidden = 8, std::int64_t out = 3)
      : fc1(child("fc1", nn::Linear(in, hidden))), fc2(child("fc2", nn::Linear(hidden, out))) {}
  Tensor forward(const Tensor& x) const { return fc2(relu(fc1(x))); }

  nn::Linear fc1;
  nn::Linear fc2;
};

/// Parameters, buffers and children in mixed order.
struct Mixed : nn::Module<Mixed> {
  nn::Linear first = child("first", nn::Linear(2, 2));
  Parameter scale = parameter("scale", ones({2}));
  Buffer count = buffer("count", zeros({}, {.dtype = DType::i64}));
  Mlp inner = child("inner", Mlp(2, 3, 2));
  Parameter shift = parameter("shift", zeros({2}));
  Buffer mean = buffer("mean", zeros({2}));

  Tensor forward(const Tensor& x) const { return inner(first(x)) * scale + shift - mean; }
};

inline std::vector<std::string> names_of(const nn::NamedTensors& named) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named) {
    names.push_back(name);
  }
  return names;
}

inline std::vector<std::string> names_of(const StateDict& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) {
    names.push_back(name);
  }
  return names;
}

/// The values of all parameters in order.
inline std::vector<std::vector<double>> values_of(const nn::ModuleBase& module) {
  std::vector<std::vector<double>> all;
  for (const Tensor& p : module.parameters()) {
    all.push_back(p.to_vector<double>());
  }
  return all;
}

inline std::vector<std::vector<double>> gradients_of(const nn::ModuleBase& module) {
  std::vector<std::vector<double>> all;
  for (const Tensor& p : module.parameters()) {
    all.push_back(p.grad().defined() ? p.grad().to_vector<double>() : std::vector<double>{});
  }
  return all;
}

}  // namespace tandem::test

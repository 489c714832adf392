#pragma once

#include <cstdint>
#include <vector>

#include <tandem/tandem.h>

#include "parallel/models.h"

namespace tandem::test {

/// Linear layers and activations alone, with fixed f64 weights.
inline nn::Sequential plain_net() {
  manual_seed(5);
  nn::Sequential model(nn::Linear(6, 8), nn::ReLU(), nn::Linear(8, 5), nn::ReLU(), nn::Linear(5, 3));
  model.to(DType::f64);
  return model;
}

/// A model with running statistics and random numbers in several stages.
inline nn::Sequential noisy_net() {
  manual_seed(5);
  nn::Sequential model(nn::Linear(6, 9), nn::BatchNorm1d(9), nn::ReLU(), nn::Dropout(0.3), nn::Linear(9, 7),
                       nn::Dropout(0.2), nn::Linear(7, 3));
  model.to(DType::f64);
  return model;
}

/// An embedding whose first and last layers share their weight.
struct TiedNet : nn::Sequential {
  TiedNet()
      : Sequential(nn::Embedding(7, 6), nn::Linear(6, 6), nn::ReLU(), nn::Linear(6, 6),
                   nn::Linear(6, 7, {.bias = false})) {
    tie(get<nn::Linear>(4).weight, get<nn::Embedding>(0).weight);
  }
};
inline TiedNet tied_net() {
  manual_seed(5);
  TiedNet model;
  model.to(DType::f64);
  return model;
}

/// The batch of a step.
inline Batch rows_of_step(int step, std::int64_t rows) {
  Generator generator(static_cast<std::uint64_t>(100 + step));
  const GeneratorScope draws(generator);
  return {randn({rows, 6}, {.dtype = DType::f64}), randint(0, 3, {rows})};
}

inline Tensor mean_loss(const Tensor& output, const Tensor& y) { return nn::cross_entropy(output, y); }

using Values = std::vector<std::vector<double>>;
/// The elements of all parameters and buffers.
inline Values values_of(const nn::ModuleRef& model) {
  Values values;
  for (const auto& [name, tensor] : model.state_dict()) {
    values.push_back(tensor.to("cpu:0").to(DType::f64).to_vector<double>());
  }
  return values;
}

}  // namespace tandem::test

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/tensor/tensor.h>

// What is trained: a multi-layer perceptron on one batch of random numbers. Every way of training it starts from the
// same numbers, so the losses can be compared.

namespace bench {

enum class Loss { mse, cross_entropy };
enum class Rule { sgd, adam };

/// A training step's shape.
struct Spec {
  std::vector<std::int64_t> sizes;  // inputs, hidden layers (each with a ReLU), outputs
  Loss loss = Loss::cross_entropy;
  std::int64_t batch = 1;
  Rule rule = Rule::sgd;
  double momentum = 0;  // of sgd
  double lr = 1e-3;
};

/// Its numbers: weights [out, in] and biases as PyTorch's Linear draws them, x [batch, in] normal, y class indices or
/// normal [batch, out].
struct Problem {
  Spec spec;
  tandem::Tensor x;
  tandem::Tensor y;
  std::vector<tandem::Tensor> weights;
  std::vector<tandem::Tensor> biases;

  std::size_t layers() const { return weights.size(); }
};

Problem make_problem(const Spec& spec);

/// Writes x.npy, y.npy, weight_0.npy, bias_0.npy, weight_1.npy, ... for other programs. Throws IoError.
void export_problem(const Problem& problem, const std::string& folder);

/// The sizes in "784-512-10"; empty when that is not what the text is.
std::vector<std::int64_t> parse_sizes(const std::string& text);

}  // namespace bench

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/tensor/state_dict.h>
#include <tandem/tensor/tensor.h>

// The training problem: a multi-layer perceptron, or a net of nets.h, on one batch of random numbers. All ways of
// training start from the same numbers, so that their losses can be compared.

namespace bench {

enum class Loss { mse, cross_entropy };
enum class Rule { sgd, adam };

/// The shape and settings of a training step.
struct Spec {
  std::string net = "";             // the name of a convolutional net; empty: the perceptron of `sizes`
  std::vector<std::int64_t> sizes;  // inputs, hidden layers (each with a ReLU), outputs
  Loss loss = Loss::cross_entropy;
  std::int64_t batch = 1;
  Rule rule = Rule::sgd;
  double momentum = 0;  // of sgd only
  double lr = 1e-3;
  std::string precision = "highest";  // the engine's, of f32 products; the floor keeps "highest"
};

/// The numbers of a Spec: weights [out, in] and biases drawn like those of PyTorch's Linear, x [batch, in] normal, y
/// class indices or normal [batch, out]. A net has a state dict in place of weights and biases, and trains in x's type.
struct Problem {
  Spec spec;
  tandem::Tensor x;
  tandem::Tensor y;
  std::vector<tandem::Tensor> weights;
  std::vector<tandem::Tensor> biases;
  tandem::StateDict state = {};

  std::size_t layers() const { return weights.size(); }
};

Problem make_problem(const Spec& spec);

/// Writes x.npy, y.npy, weight_0.npy, bias_0.npy, weight_1.npy, ... for other programs; the tensors of a net by their
/// names. Throws IoError.
void export_problem(const Problem& problem, const std::string& folder);

/// The sizes in a text such as "784-512-10"; empty for invalid text.
std::vector<std::int64_t> parse_sizes(const std::string& text);

}  // namespace bench

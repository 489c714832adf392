#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/checkpoint/generations.h>
#include <tandem/tandem.h>

#include "support/temp_dir.h"

// A small model to train in a Run, and the checkpoints that the run leaves.

namespace tandem::test {

/// A model of one layer. Each step moves its weights by the gradient of their sum times `factor`.
struct Small {
  nn::Linear model{2, 3};
  optim::SGD sgd{model.parameters(), {.lr = 0.5}};

  Tensor train(double factor = 1) {
    sgd.zero_grad();
    Tensor loss = (model(ones({1, 2})) * factor).sum();
    loss.backward();
    sgd.step();
    return loss;
  }
  /// A step of all ranks together.
  void train(parallel::DistributedDataParallel<nn::Linear>& ddp) {
    sgd.zero_grad();
    ddp(ones({1, 2})).sum().backward();
    sgd.step();
  }
  std::vector<float> weights() const { return model.weight.to_vector<float>(); }
};

inline std::vector<std::int64_t> steps_in(const TempDir& dir) {
  return checkpoint::Generations::steps_in(dir.file("run/checkpoints"));
}
inline std::string checkpoint_of(const TempDir& dir, std::int64_t step) {
  return checkpoint::Generations::path_in(dir.file("run/checkpoints"), step);
}

/// Flips a bit in the last byte of a file.
inline void damage(const std::string& path) {
  std::string content = read_text(path);
  content.back() = static_cast<char>(content.back() ^ 1);
  write_text(path, content);
}

}  // namespace tandem::test

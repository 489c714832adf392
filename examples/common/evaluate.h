#pragma once

#include <cstdint>
#include <vector>

#include <tandem/autograd/ops.h>
#include <tandem/core/grad_mode.h>

// A sample's model on its test data: outputs, and how many are right.

namespace example {

/// The outputs for all images, 500 at a time, in evaluation mode and without recording. The model then trains again.
template <class Model>
tandem::Tensor predict(Model& model, const tandem::Tensor& images) {
  const tandem::NoGradGuard no_grad;
  model.eval();
  std::vector<tandem::Tensor> parts;
  for (const tandem::Tensor& part : images.split(500)) {
    parts.push_back(model(part));
  }
  model.train();
  return cat(parts);
}

/// The share of rows whose largest output is that of the label.
inline double share_right(const tandem::Tensor& outputs, const tandem::Tensor& labels) {
  return (outputs.argmax(1) == labels).to(tandem::DType::f64).mean().item<double>();
}

}  // namespace example

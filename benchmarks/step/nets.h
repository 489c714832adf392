#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/core/shape.h>
#include <tandem/nn/container.h>

// The nets that step_bench knows by name. Their state dicts have the names of the same nets in the peers.

namespace bench {

/// A net by name, the sizes of one input, and the number of its classes or a loss of its own.
struct Net {
  std::string name;
  tandem::Shape input;  // of an image: [channels, height, width]
  std::int64_t classes;
  tandem::nn::Sequential (*make)();
  tandem::Tensor (*loss)(const tandem::nn::Sequential& net, const tandem::Tensor& x) = nullptr;
};

/// LeNet-5 with ReLU and max pooling (LeCun et al., 1998); ResNet-20 and ResNet-18 (He et al., 2015) with 1x1
/// convolutions in their shortcuts; a network 2-64-64-64-1 with tanh that solves the heat equation, whose loss has
/// second derivatives (Raissi et al., 2019).
const std::vector<Net>& nets();

/// The net of that name, or null.
const Net* find_net(const std::string& name);

}  // namespace bench

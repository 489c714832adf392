#include "step/nets.h"

#include <array>
#include <utility>

#include <tandem/autograd/grad.h>
#include <tandem/autograd/ops.h>
#include <tandem/autograd/spatial.h>
#include <tandem/nn/batch_norm.h>
#include <tandem/nn/conv.h>
#include <tandem/nn/pool.h>
#include <tandem/nn/stateless.h>

namespace bench {

using namespace tandem;

namespace {

// Two convolutions around which the input takes a shortcut.
struct Block : nn::Module<Block> {
  Block(std::int64_t in, std::int64_t out, std::int64_t stride)
      : conv1(child("conv1", nn::Conv2d(in, out, 3, {.stride = stride, .padding = 1, .bias = false}))),
        bn1(child("bn1", nn::BatchNorm2d(out))),
        conv2(child("conv2", nn::Conv2d(out, out, 3, {.padding = 1, .bias = false}))),
        bn2(child("bn2", nn::BatchNorm2d(out))),
        shortcut(child("shortcut", nn::Sequential())) {
    if (stride != 1 || in != out) {
      shortcut.push_back(nn::Conv2d(in, out, 1, {.stride = stride, .bias = false}));
      shortcut.push_back(nn::BatchNorm2d(out));
    }
  }
  Tensor forward(const Tensor& x) const { return relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)); }

  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Sequential shortcut;
};

// Stages of `blocks` blocks each; all but the first one halve the image.
void add_stages(nn::Sequential& net, std::int64_t channels, const std::vector<std::int64_t>& stages, int blocks) {
  for (const std::int64_t out : stages) {
    for (int i = 0; i < blocks; ++i) {
      net.push_back(Block(channels, out, i == 0 && out != stages.front() ? 2 : 1));
      channels = out;
    }
  }
}

nn::Sequential lenet() {
  return nn::Sequential(nn::Conv2d(1, 6, 5, {.padding = 2}), nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(6, 16, 5),
                        nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(400, 120), nn::ReLU(),
                        nn::Linear(120, 84), nn::ReLU(), nn::Linear(84, 10));
}

nn::Sequential resnet20() {
  nn::Sequential net(nn::Conv2d(3, 16, 3, {.padding = 1, .bias = false}), nn::BatchNorm2d(16), nn::ReLU());
  add_stages(net, 16, {16, 32, 64}, 3);
  net.push_back(nn::AdaptiveAvgPool2d(1));
  net.push_back(nn::Flatten());
  net.push_back(nn::Linear(64, 10));
  return net;
}

nn::Sequential resnet18() {
  nn::Sequential net(nn::Conv2d(3, 64, 7, {.stride = 2, .padding = 3, .bias = false}), nn::BatchNorm2d(64), nn::ReLU(),
                     nn::MaxPool2d(3, {.stride = 2, .padding = 1}));
  add_stages(net, 64, {64, 128, 256, 512}, 2);
  net.push_back(nn::AdaptiveAvgPool2d(1));
  net.push_back(nn::Flatten());
  net.push_back(nn::Linear(512, 1000));
  return net;
}

nn::Sequential pinn() {
  return nn::Sequential(nn::Linear(2, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh(),
                        nn::Linear(64, 1));
}

// The mean square of u_t - 0.1 u_xx, which a solution has everywhere.
Tensor heat_loss(const nn::Sequential& net, const Tensor& points) {
  const Tensor at = points.detach().requires_grad_();
  const auto [du] = autograd::grad(net(at).sum(), std::array{at}, {.create_graph = true});
  const auto [ddu] = autograd::grad(du.narrow(1, 0, 1).sum(), std::array{at}, {.create_graph = true});
  return (du.narrow(1, 1, 1) - ddu.narrow(1, 0, 1) * 0.1).pow(2).mean();
}

}  // namespace

const std::vector<Net>& nets() {
  static const std::vector<Net> all{{"lenet", {1, 28, 28}, 10, lenet},
                                    {"resnet20", {3, 32, 32}, 10, resnet20},
                                    {"resnet18", {3, 64, 64}, 1000, resnet18},
                                    {"pinn", {2}, 0, pinn, heat_loss}};
  return all;
}

const Net* find_net(const std::string& name) {
  for (const Net& net : nets()) {
    if (net.name == name) {
      return &net;
    }
  }
  return nullptr;
}

}  // namespace bench

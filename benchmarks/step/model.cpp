#include "step/model.h"

#include <utility>

#include <tandem/tandem.h>

#include "step/nets.h"

namespace bench {

using namespace tandem;

nn::Sequential make_model(const Problem& problem) {
  const NoGradGuard no_grad;
  if (const Net* net = find_net(problem.spec.net)) {
    nn::Sequential model = net->make();
    model.load_state_dict(problem.state);
    if (problem.x.dtype() != DType::f32) {
      model.to(problem.x.dtype());
    }
    return model;
  }
  nn::Sequential model;
  for (std::size_t layer = 0; layer < problem.layers(); ++layer) {
    const Tensor& weight = problem.weights[layer];
    nn::Linear linear(weight.size(1), weight.size(0), {.device = weight.device(), .dtype = weight.dtype()});
    linear.weight.copy_(weight);
    linear.bias.copy_(problem.biases[layer]);
    model.push_back(std::move(linear));
    if (layer + 1 < problem.layers()) {
      model.push_back(nn::ReLU());
    }
  }
  return model;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Spec& spec, std::vector<Tensor> parameters) {
  if (spec.rule == Rule::adam) {
    return std::make_unique<optim::Adam>(std::move(parameters), optim::AdamOptions{.lr = spec.lr});
  }
  return std::make_unique<optim::SGD>(std::move(parameters),
                                      optim::SGDOptions{.lr = spec.lr, .momentum = spec.momentum});
}

Tensor loss_of(Loss loss, const Tensor& out, const Tensor& y) {
  return loss == Loss::mse ? nn::mse_loss(out, y) : nn::cross_entropy(out, y);
}

Tensor loss_of(const Spec& spec, const nn::Sequential& model, const Tensor& x, const Tensor& y) {
  const Net* net = find_net(spec.net);
  return net != nullptr && net->loss != nullptr ? net->loss(model, x) : loss_of(spec.loss, model(x), y);
}

}  // namespace bench

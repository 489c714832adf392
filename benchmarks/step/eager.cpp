#include <memory>

#include <tandem/tandem.h>

#include "step/step.h"

namespace bench {

namespace {

using namespace tandem;

class EagerStep final : public Step {
 public:
  explicit EagerStep(const Problem& problem) : x_(problem.x), y_(problem.y), mse_(problem.spec.loss == Loss::mse) {
    const NoGradGuard no_grad;
    for (std::size_t layer = 0; layer < problem.layers(); ++layer) {
      nn::Linear linear(problem.weights[layer].size(1), problem.weights[layer].size(0));
      linear.weight.copy_(problem.weights[layer]);
      linear.bias.copy_(problem.biases[layer]);
      model_.push_back(std::move(linear));
      if (layer + 1 < problem.layers()) {
        model_.push_back(nn::ReLU());
      }
    }
    const Spec& spec = problem.spec;
    if (spec.rule == Rule::adam) {
      optimizer_ = std::make_unique<optim::Adam>(model_.parameters(), optim::AdamOptions{.lr = spec.lr});
    } else {
      optimizer_ = std::make_unique<optim::SGD>(model_.parameters(),
                                                optim::SGDOptions{.lr = spec.lr, .momentum = spec.momentum});
    }
  }

  void run(std::int64_t steps) override {
    for (std::int64_t i = 0; i < steps; ++i) {
      optimizer_->zero_grad();
      const Tensor out = model_(x_);
      loss_ = mse_ ? nn::mse_loss(out, y_) : nn::cross_entropy(out, y_);
      loss_.backward();
      optimizer_->step();
    }
  }

  double loss() const override { return loss_.item(); }

 private:
  Tensor x_;
  Tensor y_;
  bool mse_;
  nn::Sequential model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Tensor loss_;
};

}  // namespace

std::unique_ptr<Step> make_eager(const Problem& problem) { return std::make_unique<EagerStep>(problem); }

}  // namespace bench

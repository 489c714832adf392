#include <memory>

#include <tandem/tandem.h>

#include "step/model.h"
#include "step/precision_scope.h"
#include "step/step.h"

namespace bench {

namespace {

using namespace tandem;

// The step as a user writes it; CapturedStep records it.
class EagerStep final : public Step {
 public:
  explicit EagerStep(const Problem& problem)
      : x_(problem.x),
        y_(problem.y),
        spec_(problem.spec),
        model_(make_model(problem)),
        optimizer_(make_optimizer(problem.spec, model_.parameters())) {}

  void run(std::int64_t steps) override {
    for (std::int64_t i = 0; i < steps; ++i) {
      loss_ = take(x_, y_);
    }
  }

  double loss() const override { return loss_.item(); }

  Tensor take(const Tensor& x, const Tensor& y) {
    const PrecisionScope scope(spec_.precision);
    optimizer_->zero_grad();
    Tensor loss = loss_of(spec_, model_, x, y);
    loss.backward();
    optimizer_->step();
    return loss;
  }
  const Tensor& x() const { return x_; }
  const Tensor& y() const { return y_; }

 private:
  Tensor x_;
  Tensor y_;
  Spec spec_;
  nn::Sequential model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Tensor loss_;
};

// Each step copies the batch to the addresses of the recorded inputs, as in training.
class CapturedStep final : public Step {
 public:
  CapturedStep(const Problem& problem, const graph::CaptureOptions& options)
      : eager_(problem), step_(Take{&eager_}, options) {}

  void run(std::int64_t steps) override {
    for (std::int64_t i = 0; i < steps; ++i) {
      loss_ = step_(eager_.x(), eager_.y());
    }
  }

  double loss() const override { return loss_.item(); }

 private:
  struct Take {
    EagerStep* eager;
    Tensor operator()(const Tensor& x, const Tensor& y) const { return eager->take(x, y); }
  };

  EagerStep eager_;
  graph::CapturedStep<Take> step_;
  Tensor loss_;
};

}  // namespace

std::unique_ptr<Step> make_eager(const Problem& problem) { return std::make_unique<EagerStep>(problem); }
std::unique_ptr<Step> make_captured(const Problem& problem) {
  return std::make_unique<CapturedStep>(problem, graph::CaptureOptions{});
}
std::unique_ptr<Step> make_fused(const Problem& problem) {
  return std::make_unique<CapturedStep>(problem, graph::CaptureOptions{.fuse_update = true});
}

}  // namespace bench

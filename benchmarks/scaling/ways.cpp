#include "scaling/ways.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <tandem/tandem.h>

#include "step/model.h"

namespace bench::scaling {

using namespace tandem;

const char* name_of(Parallel parallel) {
  return parallel == Parallel::plain ? "plain" : parallel == Parallel::dp ? "dp" : "dp_loss";
}

namespace {

Problem problem_of(Spec spec, std::int64_t batch, Device device) {
  spec.batch = batch;
  Problem problem = make_problem(spec);
  const auto move = [&](Tensor& tensor) { tensor = tensor.to(device); };
  move(problem.x);
  move(problem.y);
  std::ranges::for_each(problem.weights, move);
  std::ranges::for_each(problem.biases, move);
  return problem;
}

class ScalingStep final : public TrainingStep {
 public:
  ScalingStep(const Problem& problem, const Way& way, const std::vector<Device>& devices)
      : x_(problem.x),
        y_(problem.y),
        criterion_(problem.spec.loss),
        parallel_(way.parallel),
        model_(make_model(problem)),
        optimizer_(make_optimizer(problem.spec, model_.parameters())) {
    if (parallel_ != Parallel::plain) {
      dp_.emplace(model_, devices);
    }
    if (way.is_captured) {
      differentiate_ = captured(differentiate_);
      step_ = captured(step_);
    }
  }

  void run(std::int64_t steps) override {
    for (std::int64_t i = 0; i < steps; ++i) {
      loss_ = step_(x_, y_);
    }
    if (x_.device().type == DeviceType::cuda) {
      loss_.item();
    }
  }

  double loss() const override { return loss_.item(); }

  std::vector<Tensor> gradients_and_loss() override {
    for (int i = 0; i < 3; ++i) {  // the third call of a captured function is a replay
      loss_ = differentiate_(x_, y_);
    }
    std::vector<Tensor> values;
    for (const Tensor& parameter : model_.parameters()) {
      values.push_back(parameter.grad());
    }
    values.push_back(loss_.detach());
    return values;
  }

 private:
  using Function = std::function<Tensor(Tensor x, Tensor y)>;

  static Function captured(Function function) {
    auto step = std::make_shared<graph::CapturedStep<Function>>(std::move(function));
    return [step = std::move(step)](const Tensor& x, const Tensor& y) { return (*step)(x, y); };
  }

  Tensor differentiate(const Tensor& x, const Tensor& y) {
    optimizer_->zero_grad();
    Tensor loss = forward(x, y);
    loss.backward();
    return loss;
  }

  Tensor forward(const Tensor& x, const Tensor& y) {
    switch (parallel_) {
      case Parallel::dp: return loss_of(criterion_, (*dp_)(x), y);
      case Parallel::dp_loss:
        return dp_->loss([this](const Tensor& out, const Tensor& t) { return loss_of(criterion_, out, t); }, x, y);
      case Parallel::plain: break;
    }
    return loss_of(criterion_, outputs(x), y);
  }

  Tensor outputs(const Tensor& x) {
    const SpanScope timed(Phase::forward);
    return model_(x);
  }

  Tensor x_;
  Tensor y_;
  Loss criterion_;
  Parallel parallel_;
  nn::Sequential model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<parallel::DataParallel<nn::Sequential>> dp_;
  Function differentiate_ = [this](const Tensor& x, const Tensor& y) { return differentiate(x, y); };
  Function step_ = [this](const Tensor& x, const Tensor& y) {
    Tensor loss = differentiate(x, y);
    optimizer_->step();
    return loss;
  };
  Tensor loss_;
};

}  // namespace

std::unique_ptr<TrainingStep> make_step(const Spec& spec, const Way& way, DeviceType type) {
  std::vector<Device> devices;
  for (int i = 0; i < way.devices; ++i) {
    devices.emplace_back(type, i);
  }
  return std::make_unique<ScalingStep>(problem_of(spec, way.batch, devices.front()), way, devices);
}

double difference(TrainingStep& a, TrainingStep& b) {
  const std::vector<Tensor> left = a.gradients_and_loss();
  const std::vector<Tensor> right = b.gradients_and_loss();
  double worst = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const std::vector<float> x = left[i].to("cpu:0").to_vector<float>();
    const std::vector<float> y = right[i].to("cpu:0").to_vector<float>();
    double most = 0;
    double scale = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      most = std::max(most, std::abs(static_cast<double>(x[k]) - static_cast<double>(y[k])));
      scale = std::max(scale, std::abs(static_cast<double>(y[k])));
    }
    worst = std::max(worst, scale > 0 ? most / scale : most);
  }
  return worst;
}

}  // namespace bench::scaling

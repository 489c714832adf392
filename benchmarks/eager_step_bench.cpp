// One eager training step of Linear(10, 1), MSE, batch 32, SGD: almost all of its time is the engine's overhead. The
// floor runs beside it in the same process: the same step as plain loops on the same numbers.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include <tandem/tandem.h>

namespace {

using namespace tandem;

constexpr std::int64_t kBatch = 32;
constexpr std::int64_t kFeatures = 10;
constexpr double kLearningRate = 1e-3;

struct Problem {
  Tensor x;
  Tensor y;
  Tensor weight;
  Tensor bias;

  Problem() {
    manual_seed(20);
    x = randn({kBatch, kFeatures});
    y = randn({kBatch, 1});
    weight = randn({1, kFeatures});
    bias = randn({1});
  }
};

class EagerStep {
 public:
  explicit EagerStep(const Problem& problem) : x_(problem.x), y_(problem.y), layer_(kFeatures, 1) {
    const NoGradGuard no_grad;
    layer_.weight.copy_(problem.weight);
    layer_.bias.copy_(problem.bias);
    sgd_ = std::make_unique<optim::SGD>(layer_.parameters(), optim::SGDOptions{.lr = kLearningRate});
  }

  Tensor run() {
    sgd_->zero_grad();
    Tensor loss = nn::mse_loss(layer_(x_), y_);
    loss.backward();
    sgd_->step();
    return loss;
  }

 private:
  Tensor x_;
  Tensor y_;
  nn::Linear layer_;
  std::unique_ptr<optim::SGD> sgd_;
};

class PlainStep {
 public:
  explicit PlainStep(const Problem& problem)
      : x_(problem.x.to_vector<float>()),
        y_(problem.y.to_vector<float>()),
        weight_(problem.weight.to_vector<float>()),
        bias_(problem.bias.item<float>()) {}

  float run() {
    float loss = 0;
    float weight_grad[kFeatures] = {};
    float bias_grad = 0;
    for (std::size_t row = 0; row < kBatch; ++row) {
      const float* x = &x_[row * kFeatures];
      float out = bias_;
      for (std::size_t i = 0; i < kFeatures; ++i) {
        out += x[i] * weight_[i];
      }
      const float error = out - y_[row];
      loss += error * error;
      const float grad = 2 * error / kBatch;
      bias_grad += grad;
      for (std::size_t i = 0; i < kFeatures; ++i) {
        weight_grad[i] += grad * x[i];
      }
    }
    for (std::size_t i = 0; i < kFeatures; ++i) {
      weight_[i] -= static_cast<float>(kLearningRate) * weight_grad[i];
    }
    bias_ -= static_cast<float>(kLearningRate) * bias_grad;
    return loss / kBatch;
  }

 private:
  std::vector<float> x_;
  std::vector<float> y_;
  std::vector<float> weight_;
  float bias_;
};

// Speed without equal numbers would be a bug, so compare the losses first.
void require_equal_losses() {
  const Problem problem;
  EagerStep eager(problem);
  PlainStep plain(problem);
  for (int step = 0; step < 50; ++step) {
    const double a = eager.run().item();
    const double b = plain.run();
    if (std::abs(a - b) > 1e-5 * std::abs(b)) {
      std::fprintf(stderr, "step %d: the engine's loss is %.9g, the loops' %.9g\n", step, a, b);
      std::exit(1);
    }
  }
}

void linear_step_eager(benchmark::State& state) {
  EagerStep step{Problem()};
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(step.run());
  }
}
BENCHMARK(linear_step_eager);

void linear_step_floor(benchmark::State& state) {
  PlainStep step{Problem()};
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(step.run());
  }
}
BENCHMARK(linear_step_floor);

}  // namespace

int main(int argc, char** argv) {
  require_equal_losses();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

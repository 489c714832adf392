// A program with a kernel of its own (reglu.h): checks its gradient, trains a network that uses it, and measures it
// against the same function composed of tandem's ops.

#include <chrono>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include <tandem/tandem.h>

#include "reglu.h"

using namespace tandem;

namespace {

Tensor composed(const Tensor& a, const Tensor& b) { return relu(a) * b; }

// A transformer's feed-forward layer.
struct FeedForward : nn::Module<FeedForward> {
  FeedForward(std::int64_t width, std::int64_t hidden)
      : gate(child("gate", nn::Linear(width, hidden))),
        up(child("up", nn::Linear(width, hidden))),
        down(child("down", nn::Linear(hidden, width))) {}
  Tensor forward(const Tensor& x) const { return down(reglu(gate(x), up(x))); }
  nn::Linear gate, up, down;
};

double microseconds(Tensor (*function)(const Tensor&, const Tensor&), const Tensor& a, const Tensor& b,
                    const Tensor& wanted) {
  constexpr int kTimes = 50;
  auto step = graph::capture([&] {
    a.zero_grad();
    b.zero_grad();
    mse_loss(function(a, b), wanted).backward();
  });
  for (int i = 0; i < 5; ++i) {
    step();
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimes; ++i) {
    step();
  }
  if (a.device().type == DeviceType::cuda) {
    cuda::synchronize(a.device());
  }
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / kTimes;
}

int own_kernel(const Device device) {
  manual_seed(1);
  const TensorOptions f64{.dtype = DType::f64, .device = device};
  // Throws unless they are equal.
  autograd::gradcheck([](const std::vector<Tensor>& in) { return reglu(in[0], in[1]); },
                      {randn({3, 5}, f64).requires_grad_(), randn({3, 5}, f64).requires_grad_()});
  std::cout << "gradient: equal to differences\n";

  FeedForward layer(32, 64);
  layer.to(device);
  optim::Adam adam(layer.parameters(), {.lr = 1e-2});
  const Tensor x = randn({256, 32}, {.device = device});
  const Tensor wanted = sin(x * 2);
  auto step = graph::capture([&] {
    adam.zero_grad();
    const Tensor loss = mse_loss(layer(x), wanted);
    loss.backward();
    adam.step();
    return loss;
  });
  const double first = step().item();
  for (int i = 0; i < 200; ++i) {
    step();
  }
  const double last = step().item();
  std::cout << "training, captured: loss " << first << " to " << last << "\n";

  const Tensor a = randn({1024, 1024}, {.device = device}).requires_grad_();
  const Tensor b = randn({1024, 1024}, {.device = device}).requires_grad_();
  const Tensor target = randn({1024, 1024}, {.device = device});
  const double own = microseconds(reglu, a, b, target);
  const double ops = microseconds(composed, a, b, target);
  std::cout << std::fixed << std::setprecision(0) << "step with 1024 x 1024 elements: " << own
            << " us, composed of two ops " << ops << " us\n";
  return last < 0.2 * first ? 0 : 1;
}

}  // namespace

// own_kernel [DEVICE], for example cuda:0
int main(int argc, char** argv) {
  try {
    return own_kernel(argc > 1 ? Device(std::string(argv[1])) : Device());
  } catch (const Error& error) {
    std::cerr << "own_kernel: " << error.what() << "\n";
    return 1;
  }
}

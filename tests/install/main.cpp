// A user's program: a Linear that learns y = 2 x0 - x1 + 0.5.
#include <cmath>
#include <iostream>

#include <tandem/nn/linear.h>
#include <tandem/tandem.h>

int main() {
  using namespace tandem;
  manual_seed(0);
  const Tensor x = randn({64, 2});
  const Tensor y = x.narrow(1, 0, 1) * 2.0 - x.narrow(1, 1, 1) + 0.5;
  nn::Linear layer(2, 1);
  optim::SGD sgd(layer.parameters(), {.lr = 0.1});
  for (int step = 0; step < 200; ++step) {
    sgd.zero_grad();
    Tensor loss = nn::mse_loss(layer(x), y);
    loss.backward();
    sgd.step();
  }
  const double loss = nn::mse_loss(layer(x), y).item<double>();
  std::cout << "loss " << loss << "\n" << layer.weight << "\n";
  return std::isfinite(loss) && loss < 1e-6 ? 0 : 1;
}

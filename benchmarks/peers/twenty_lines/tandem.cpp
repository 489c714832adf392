#include <tandem/tandem.h>
using namespace tandem;

struct Mlp : nn::Module<Mlp> {
  nn::Linear fc1 = child("fc1", nn::Linear(64, 256));
  nn::Linear fc2 = child("fc2", nn::Linear(256, 10));
  Tensor forward(const Tensor& x) const { return fc2(relu(fc1(x))); }
};

int main() {
  manual_seed(0);
  data::TensorDataset train(randn({1024, 64}), randint(0, 10, {1024}));
  Mlp model;
  optim::Adam adam(model.parameters(), {.lr = 1e-3});
  for (auto [x, y] : data::DataLoader(train, {.batch_size = 64})) {
    adam.zero_grad();
    nn::cross_entropy(model(x), y).backward();
    adam.step();
  }
}

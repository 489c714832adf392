// Runs one training step on all GPUs (or on the CPU if there are none) and looks inside a wrapper.
//
//     article_how_to_use_all

#include <iostream>

#include <fmt/format.h>

#include <tandem/tandem.h>

using namespace tandem;

namespace {

struct SimpleNet : nn::Module<SimpleNet> {
  nn::Linear fc = child("fc", nn::Linear(10, 2));
  Tensor forward(const Tensor& x) const { return fc(x); }
};

void train_a_step() {
  if (cuda::device_count() > 1) {
    fmt::print("Using {} GPUs\n", cuda::device_count());
  }
  const Device device(cuda::is_available() ? "cuda" : "cpu");
  SimpleNet model;
  parallel::DataParallel replicas(model);
  model.to(device);

  const Tensor inputs = randn({16, 10}).to(device);
  const Tensor labels = randint(0, 2, {16}).to(device);

  optim::SGD optimizer(model.parameters(), {.lr = 0.01});
  model.train();
  const Tensor outputs = replicas(inputs);
  const Tensor loss = nn::cross_entropy(outputs, labels);
  loss.backward();
  optimizer.step();
  fmt::print("Loss: {:.4f}\n", loss.item());
}

// replicas.weight does not compile. module() returns the wrapped module with its own type.
void look_inside() {
  nn::Linear model(10, 2);
  const parallel::DataParallel replicas(model);
  if (cuda::is_available()) {
    model.to("cuda");
  }
  fmt::print("Parameter containing:\n");
  std::cout << replicas.module().weight << "\n";
}

}  // namespace

int main() {
  train_a_step();
  look_inside();
}

#include <torch/torch.h>

struct MlpImpl : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(64, 256))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(256, 10))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
TORCH_MODULE(Mlp);

struct Train : torch::data::Dataset<Train> {
  torch::Tensor x = torch::randn({1024, 64}), y = torch::randint(0, 10, {1024});
  torch::data::Example<> get(size_t i) override { return {x[i], y[i]}; }
  torch::optional<size_t> size() const override { return 1024; }
};

int main() {
  torch::manual_seed(0);
  Mlp model;
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(1e-3));
  auto loader = torch::data::make_data_loader(Train().map(torch::data::transforms::Stack<>()), 64);
  for (auto& batch : *loader) {
    adam.zero_grad();
    torch::nn::functional::cross_entropy(model(batch.data), batch.target).backward();
    adam.step();
  }
}

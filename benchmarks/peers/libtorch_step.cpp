// libtorch's training step on the data and weights that `step_bench --export` wrote. Takes step_bench's flags and
// prints one JSON object in its format to stdout.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "peer_step.h"

namespace {

torch::Tensor load(const std::string& path, std::vector<std::int64_t> sizes, torch::Dtype dtype) {
  torch::Tensor tensor = torch::empty(sizes, dtype);
  peer::load(path, tensor.data_ptr(), tensor.nbytes());
  return tensor;
}

class Training {
 public:
  explicit Training(const peer::Flags& flags) : mse_(flags.at("--loss") == "mse") {
    const std::vector<std::int64_t> sizes = peer::sizes_of(flags.at("--model"));
    const std::int64_t batch = std::stoll(flags.at("--batch"));
    const std::string folder = flags.at("--data") + "/";
    x_ = load(folder + "x.npy", {batch, sizes.front()}, torch::kFloat32);
    y_ = mse_ ? load(folder + "y.npy", {batch, sizes.back()}, torch::kFloat32)
              : load(folder + "y.npy", {batch}, torch::kInt64);
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
      torch::nn::Linear layer(sizes[i], sizes[i + 1]);
      const torch::NoGradGuard no_grad;
      const std::string number = std::to_string(i) + ".npy";
      layer->weight.copy_(load(folder + "weight_" + number, {sizes[i + 1], sizes[i]}, torch::kFloat32));
      layer->bias.copy_(load(folder + "bias_" + number, {sizes[i + 1]}, torch::kFloat32));
      model_->push_back(layer);
      if (i + 2 < sizes.size()) {
        model_->push_back(torch::nn::ReLU());
      }
    }
    if (flags.at("--optimizer") == "adam") {
      optimizer_ = std::make_unique<torch::optim::Adam>(model_->parameters(), peer::rate_of(flags));
    } else {
      optimizer_ = std::make_unique<torch::optim::SGD>(
          model_->parameters(),
          torch::optim::SGDOptions(peer::rate_of(flags)).momentum(std::stod(flags.at("--momentum"))));
    }
  }

  void run(std::int64_t steps) {
    for (std::int64_t i = 0; i < steps; ++i) {
      optimizer_->zero_grad();
      const torch::Tensor out = model_->forward(x_);
      loss_ = mse_ ? torch::mse_loss(out, y_) : torch::nn::functional::cross_entropy(out, y_);
      loss_.backward();
      optimizer_->step();
    }
  }
  double loss() const { return loss_.item<double>(); }

 private:
  bool mse_;
  torch::Tensor x_;
  torch::Tensor y_;
  torch::nn::Sequential model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  torch::Tensor loss_;
};

}  // namespace

int main(int argc, char** argv) {
  return peer::run_main(argc, argv, [](const peer::Flags& flags) {
    torch::set_num_threads(std::stoi(flags.at("--threads")));
    Training training(flags);
    peer::measure(flags, training, "libtorch", TORCH_VERSION);
  });
}

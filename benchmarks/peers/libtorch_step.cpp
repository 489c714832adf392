// libtorch's training step on the data and weights that `step_bench --export` wrote. Takes step_bench's flags and
// prints one JSON object in its format to stdout.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "step/clock.h"

namespace {

using Flags = std::map<std::string, std::string>;

Flags read_flags(int argc, char** argv) {
  Flags flags{{"--loss", "ce"},     {"--momentum", "0"}, {"--threads", "1"},      {"--blocks", "30"},
              {"--block-ms", "20"}, {"--lr", "0"},       {"--check-steps", "50"}, {"--setting", "default"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    flags[argv[i]] = argv[i + 1];
  }
  for (const char* name : {"--data", "--model", "--batch", "--optimizer"}) {
    if (!flags.contains(name)) {
      throw std::runtime_error(std::string(name) +
                               ": a value is needed; the flags are those of step_bench, and --data");
    }
  }
  return flags;
}

// Reads NPY format 1.0. Bytes 8 and 9 hold the length of the header.
torch::Tensor load(const std::string& path, std::vector<std::int64_t> sizes, torch::Dtype dtype) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  torch::Tensor tensor = torch::empty(sizes, dtype);
  const std::size_t wanted = tensor.nbytes();
  if (bytes.size() < 10 + wanted) {
    throw std::runtime_error(path + ": too short for its shape, or not there");
  }
  std::copy(bytes.end() - static_cast<std::ptrdiff_t>(wanted), bytes.end(), static_cast<char*>(tensor.data_ptr()));
  return tensor;
}

std::vector<std::int64_t> sizes_of(const std::string& model) {
  std::vector<std::int64_t> sizes;
  for (std::size_t at = 0; at < model.size(); at = model.find('-', at) + 1) {
    sizes.push_back(std::stoll(model.substr(at)));
    if (model.find('-', at) == std::string::npos) {
      break;
    }
  }
  return sizes;
}

double now() { return bench::now(torch::get_num_threads() == 1); }

class Training {
 public:
  explicit Training(const Flags& flags) : mse_(flags.at("--loss") == "mse") {
    const std::vector<std::int64_t> sizes = sizes_of(flags.at("--model"));
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
    const double lr = std::stod(flags.at("--lr"));
    if (flags.at("--optimizer") == "adam") {
      optimizer_ = std::make_unique<torch::optim::Adam>(model_->parameters(), lr > 0 ? lr : 1e-4);
    } else {
      optimizer_ = std::make_unique<torch::optim::SGD>(
          model_->parameters(),
          torch::optim::SGDOptions(lr > 0 ? lr : 1e-3).momentum(std::stod(flags.at("--momentum"))));
    }
  }

  double run(std::int64_t steps) {
    const double start = now();
    for (std::int64_t i = 0; i < steps; ++i) {
      optimizer_->zero_grad();
      const torch::Tensor out = model_->forward(x_);
      loss_ = mse_ ? torch::mse_loss(out, y_) : torch::nn::functional::cross_entropy(out, y_);
      loss_.backward();
      optimizer_->step();
    }
    return now() - start;
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

void measure(const Flags& flags) {
  torch::set_num_threads(std::stoi(flags.at("--threads")));
  Training training(flags);
  const std::int64_t check_steps = std::stoll(flags.at("--check-steps"));
  training.run(check_steps);
  const double loss = training.loss();
  const double block = std::stod(flags.at("--block-ms")) * 1e-3;
  std::int64_t steps = 1;
  double seconds = training.run(steps);
  while (seconds < block / 10) {
    steps *= 4;
    seconds = training.run(steps);
  }
  steps = std::max<std::int64_t>(1, std::llround(static_cast<double>(steps) * block / seconds));
  const std::size_t blocks = std::stoull(flags.at("--blocks"));
  std::vector<std::pair<double, double>> samples;  // share of time that our threads waited; seconds per step
  std::size_t clean = 0;
  while (clean < blocks && samples.size() < 4 * blocks) {
    const double waited = bench::waited_seconds();
    const double time = training.run(steps);
    samples.emplace_back((bench::waited_seconds() - waited) / time, time / static_cast<double>(steps));
    clean += samples.back().first < 0.01 ? 1 : 0;
  }
  std::sort(samples.begin(), samples.end());
  samples.resize(blocks);
  std::vector<double> times;
  std::size_t disturbed = 0;
  for (const auto& [share, time] : samples) {
    times.push_back(time);
    disturbed += share >= 0.01 ? 1 : 0;
  }
  std::sort(times.begin(), times.end());
  const double median = (times[(blocks - 1) / 2] + times[blocks / 2]) / 2;
  std::printf(
      "{\"engine\":\"libtorch\",\"setting\":\"%s\",\"version\":\"%s\",\"model\":\"%s\",\"loss\":\"%s\",\"batch\":%s,"
      "\"optimizer\":\"%s\",\"momentum\":%s,\"threads\":%s,\"us_per_step\":%.9g,\"blocks\":%zu,\"disturbed\":%zu,"
      "\"check_steps\":%lld,\"loss_after_steps\":%.9g}\n",
      flags.at("--setting").c_str(), TORCH_VERSION, flags.at("--model").c_str(), flags.at("--loss").c_str(),
      flags.at("--batch").c_str(), flags.at("--optimizer").c_str(), flags.at("--momentum").c_str(),
      flags.at("--threads").c_str(), median * 1e6, blocks, disturbed, static_cast<long long>(check_steps), loss);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    measure(read_flags(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return 0;
}

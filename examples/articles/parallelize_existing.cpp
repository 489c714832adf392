// Takes a program from one device to several in three ways: replicas in one process, ranks, and a model whose parts are
// on different devices.
//
// all three ways
// only the second way, as two ranks
//
// stdout has the output of the PyTorch programs, stderr the final losses.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include <tandem/tandem.h>

using namespace tandem;

namespace {

// Settings that the programs start with.
constexpr std::int64_t kInputs = 16;
constexpr std::int64_t kHidden = 32;
constexpr std::int64_t kClasses = 4;
constexpr double kLearningRate = 1e-3;
constexpr int kEpochs = 3;

data::TensorDataset make_dataset() {
  const Tensor x = randn({512, kInputs});
  return data::TensorDataset(x, x.narrow(1, 0, kClasses).argmax(1));  // index of the largest of four inputs
}

nn::Sequential make_model() {
  return nn::Sequential(nn::Linear(kInputs, kHidden), nn::ReLU(), nn::Linear(kHidden, kClasses));
}

// A GPU if there is one, else a logical CPU device. The code is the same for both.
Device device_number(int index) {
  const int gpus = cuda::device_count();
  return gpus > 0 ? Device(index % gpus) : Device(DeviceType::cpu, index);
}

void data_parallel(const data::TensorDataset& dataset) {
  data::DataLoader train_loader(dataset, {.batch_size = 64, .shuffle = true});
  std::vector<Device> device_ids;
  device_ids.reserve(static_cast<std::size_t>(cuda::device_count()));
  for (int gpu = 0; gpu < cuda::device_count(); ++gpu) {
    device_ids.emplace_back(gpu);
  }
  if (device_ids.size() > 1) {
    fmt::print("Let's use {} GPUs!\n", device_ids.size());
  }
  nn::Sequential model = make_model();
  parallel::DataParallel replicas(model, device_ids);
  const Device first = device_number(0);
  model.to(first);

  optim::Adam optimizer(model.parameters(), {.lr = kLearningRate});
  Tensor loss;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (const auto& [x, y] : train_loader) {
      const Tensor inputs = x.to(first);  // DataParallel distributes the rows from here
      const Tensor labels = y.to(first);
      optimizer.zero_grad();
      const Tensor outputs = replicas(inputs);
      loss = nn::cross_entropy(outputs, labels);
      loss.backward();
      optimizer.step();
    }
  }
  fmt::print(stderr, "data parallel: loss {:.4f}\n", loss.item());
}

void distributed(const data::TensorDataset& dataset) {
  const int local_rank = parallel::read_world().local_rank;  // rank on this host, where GPUs are counted from 0
  const Device device = cuda::is_available() ? Device(local_rank) : Device("cpu");
  const core::DeviceScope here(device);
  const parallel::ProcessGroupGuard guard;

  nn::Sequential model = make_model();  // no seed needed: all ranks get rank 0's parameters
  model.to(device);                     // before it is wrapped
  parallel::DistributedDataParallel ddp(model);
  optim::Adam optimizer(model.parameters(), {.lr = kLearningRate});
  const auto train_sampler = std::make_shared<parallel::DistributedSampler>(dataset);
  data::DataLoader train_loader(dataset, {.batch_size = 64, .sampler = train_sampler});

  Tensor loss;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    train_sampler->set_epoch(static_cast<std::uint64_t>(epoch));  // optional: the sampler counts epochs by itself
    for (const auto& [x, y] : train_loader) {
      optimizer.zero_grad();
      const Tensor outputs = ddp(x.to(device));
      loss = nn::cross_entropy(outputs, y.to(device));
      loss.backward();
      optimizer.step();
    }
  }
  if (parallel::get_rank() == 0) {
    fmt::print(stderr, "distributed, {} ranks: loss {:.4f}\n", parallel::get_world_size(), loss.item());
  }
}

// Two parts of one model on two devices. One optimiser has the parameters of both.
void model_parallel(const data::TensorDataset& dataset) {
  data::DataLoader data_loader(dataset, {.batch_size = 64, .shuffle = true});
  const Device first = device_number(0);
  const Device second = device_number(1);
  nn::Linear model_part1(kInputs, kHidden);
  nn::Linear model_part2(kHidden, kClasses);
  model_part1.to(first);
  model_part2.to(second);
  std::vector<Tensor> parameters = model_part1.parameters();
  for (const Tensor& parameter : model_part2.parameters()) {
    parameters.push_back(parameter);
  }
  optim::Adam optimizer(parameters, {.lr = kLearningRate});
  Tensor loss;
  for (const auto& [x, y] : data_loader) {
    optimizer.zero_grad();
    Tensor intermediate = model_part1(x.to(first));
    intermediate = intermediate.to(second);  // its gradient returns along the same path
    const Tensor outputs = model_part2(intermediate);
    loss = nn::cross_entropy(outputs, y.to(second));
    loss.backward();
    optimizer.step();
  }
  fmt::print(stderr, "model parallel: loss {:.4f}\n", loss.item());
}

}  // namespace

int main() {
  const data::TensorDataset dataset = make_dataset();
  const bool alone = parallel::read_world().world_size == 1;
  if (alone) {
    data_parallel(dataset);
  }
  distributed(dataset);
  if (alone) {
    model_parallel(dataset);
  }
}

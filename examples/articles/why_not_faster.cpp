// Why are not all GPUs busy, and why is training not faster? The program first lists the GPUs. Then it trains as ranks,
// each with its own device and its own loader, instead of sending everything through one device.
//
//     article_why_not_faster
//
// The ranks are threads of this process; {.processes = true} makes them processes. The program uses one rank per GPU,
// or two on the CPU.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include <tandem/tandem.h>

using namespace tandem;

namespace {

void list_gpus() {
  if (cuda::is_available()) {
    fmt::print("number of gpus available: {}\n", cuda::device_count());
    for (int i = 0; i < cuda::device_count(); ++i) {
      fmt::print("gpu {} name: {}\n", i, cuda::device_name(i));
    }
  } else {
    fmt::print("cuda is not available on this machine.\n");
  }
}

// No address, no port, no setup and no cleanup: spawn() has made the group and ends it.
void train_ddp(int rank, Device device) {
  nn::Linear model(10, 2);
  model.to(device);
  parallel::DistributedDataParallel ddp_model(model);
  optim::SGD optimizer(model.parameters(), {.lr = 0.01});
  for (int epoch = 0; epoch < 100; ++epoch) {
    const Tensor input = randn({20, 10}).to(device);  // each rank draws its own input
    const Tensor target = randn({20, 2}).to(device);
    optimizer.zero_grad();
    const Tensor output = ddp_model(input);
    const Tensor loss = nn::mse_loss(output, target);
    loss.backward();
    optimizer.step();
    if (rank == 0) {
      fmt::print("epoch: {}, loss:{}\n", epoch, loss.item());  // the loss of rank 0's part only
    }
  }
}

// Random inputs and targets.
struct DummyDataset : data::Dataset {
  explicit DummyDataset(std::int64_t samples) : count(samples) {}
  std::int64_t size() const override { return count; }
  data::Example get(std::int64_t) const override { return {randn({10}), randn({2})}; }
  std::int64_t count;
};

// Trains as ranks on a data set. Each rank's loader has a part of it.
void train_on_dataset(int rank, Device device) {
  nn::Linear model(10, 2);
  model.to(device);
  parallel::DistributedDataParallel ddp_model(model);
  optim::SGD optimizer(model.parameters(), {.lr = 0.01});
  const DummyDataset dataset(1000);
  data::DataLoader loader(dataset,
                          {.batch_size = 20, .sampler = std::make_shared<parallel::DistributedSampler>(dataset)});
  double sum = 0;
  for (const auto& [x, y] : loader) {
    optimizer.zero_grad();
    const Tensor loss = nn::mse_loss(ddp_model(x.to(device)), y.to(device));
    loss.backward();
    optimizer.step();
    sum += loss.item();
  }
  const Tensor mean = full({1}, sum / static_cast<double>(loader.size()));
  parallel::default_group().all_reduce(mean, parallel::ReduceOp::avg);
  if (rank == 0) {
    fmt::print(stderr, "{} batches on each of {} ranks: mean loss of all {:.4f}\n", loader.size(),
               parallel::get_world_size(), mean.item());
  }
}

}  // namespace

int main() {
  list_gpus();
  const int world_size = cuda::is_available() ? cuda::device_count() : 2;
  std::vector<Device> devices;
  devices.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    devices.push_back(cuda::is_available() ? Device(rank) : Device(DeviceType::cpu, rank));
  }
  const auto run = [&](int rank) {
    train_ddp(rank, devices[static_cast<std::size_t>(rank)]);
    train_on_dataset(rank, devices[static_cast<std::size_t>(rank)]);
  };
  parallel::spawn(world_size, run, {.devices = devices});
}

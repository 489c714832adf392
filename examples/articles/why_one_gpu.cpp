// Why does a training program use only one of several GPUs? Because nothing tells it to use more. This one trains a
// linear model in three ways: as replicas on all GPUs of one process, as replicas with a loader that shuffles, and as
// ranks with a part of the data each.
//
// all three ways
// only the third way, as two ranks
//
// stdout has the output of the PyTorch programs, stderr the final losses.

#include <memory>

#include <fmt/format.h>

#include <tandem/tandem.h>

using namespace tandem;

namespace {

data::TensorDataset make_dataset() {
  const Tensor x = randn({1000, 10});
  const Tensor y = randn({1000, 1});
  return data::TensorDataset(x, y);
}

Tensor train(auto& model, optim::SGD& optimizer, data::DataLoader& loader, Device device) {
  Tensor loss;
  for (int epoch = 0; epoch < 10; ++epoch) {
    for (const auto& [x, y] : loader) {
      const Tensor inputs = x.to(device);
      const Tensor labels = y.to(device);
      optimizer.zero_grad();
      const Tensor outputs = model(inputs);
      loss = nn::mse_loss(outputs, labels);
      loss.backward();
      optimizer.step();
    }
  }
  return loss;
}

// One process with a replica of the model on each GPU. Without a GPU the wrapper is a plain call.
void on_all_gpus(const data::TensorDataset& dataset, bool shuffle) {
  nn::Linear model(10, 1);
  data::DataLoader loader(dataset, {.batch_size = 32, .shuffle = shuffle});
  if (cuda::device_count() > 1 && !shuffle) {
    fmt::print("Let's use {} GPUs!\n", cuda::device_count());
  }
  parallel::DataParallel replicas(model);  // wrap first and move later, or the other way round
  const Device device(cuda::is_available() ? "cuda" : "cpu");
  model.to(device);
  optim::SGD optimizer(model.parameters(), {.lr = 0.01});
  const Tensor loss = train(replicas, optimizer, loader, device);
  fmt::print(stderr, "data parallel{}: loss {:.4f}\n", shuffle ? ", shuffled" : "", loss.item());
}

// Every rank runs this: one process per GPU, or two and more on CPUs.
void as_ranks(const data::TensorDataset& dataset) {
  const Device device = cuda::is_available() ? Device(parallel::read_world().local_rank) : Device("cpu");
  const core::DeviceScope here(device);     // also decides what carries the data: NCCL or Gloo
  const parallel::ProcessGroupGuard guard;  // rank and size come from the launcher; leaves at the end of the scope
  nn::Linear model(10, 1);
  model.to(device);
  parallel::DistributedDataParallel ddp(model);
  optim::SGD optimizer(model.parameters(), {.lr = 0.01});
  const auto sampler = std::make_shared<parallel::DistributedSampler>(dataset);  // a new order in each epoch
  data::DataLoader loader(dataset, {.batch_size = 32, .sampler = sampler});
  const Tensor loss = train(ddp, optimizer, loader, device);
  if (parallel::get_rank() == 0) {
    fmt::print(stderr, "distributed, {} ranks: loss {:.4f}\n", parallel::get_world_size(), loss.item());
  }
}

}  // namespace

int main() {
  const data::TensorDataset dataset = make_dataset();
  if (parallel::read_world().world_size == 1) {
    on_all_gpus(dataset, false);
    on_all_gpus(dataset, true);  // no sampler here: this one process has the whole batch
  }
  as_ranks(dataset);
}

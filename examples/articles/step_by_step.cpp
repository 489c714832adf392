// Trains a small net on any number of GPUs, including none, and prints its progress.
//
//     article_step_by_step

#include <vector>

#include <fmt/format.h>

#include <tandem/tandem.h>

using namespace tandem;

namespace {

struct SimpleModel : nn::Module<SimpleModel> {
  nn::Linear fc1 = child("fc1", nn::Linear(128, 256));
  nn::Linear fc2 = child("fc2", nn::Linear(256, 128));
  nn::Linear fc3 = child("fc3", nn::Linear(128, 10));

  Tensor forward(const Tensor& input) const {
    Tensor x = relu(fc1(input));
    x = relu(fc2(x));
    return fc3(x);
  }
};

}  // namespace

int main() {
  const Device device(cuda::is_available() ? "cuda" : "cpu");
  const int num_gpus = cuda::device_count();
  fmt::print("Available GPUs: {}\n", num_gpus);
  if (num_gpus == 0) {
    fmt::print("Warning: No GPUs detected. Code will run on CPU.\n");
  }

  SimpleModel model;
  model.to(device);
  parallel::DataParallel replicas(model);  // on one device, a plain call
  if (num_gpus > 1) {
    fmt::print("Model wrapped with DataParallel on {} GPUs\n", num_gpus);
  } else {
    fmt::print("Running on single device: {}\n", num_gpus == 0 ? "cpu" : "cuda");
  }

  optim::SGD optimizer(model.parameters(), {.lr = 0.01});

  const Tensor x_train = randn({64, 128});
  const Tensor y_train = randint(0, 10, {64});
  const data::TensorDataset dataset(x_train, y_train);
  data::DataLoader dataloader(dataset, {.batch_size = 16, .shuffle = true});

  const int epochs = 2;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    double total_loss = 0;
    for (const auto& [x, y] : dataloader) {
      const Tensor x_batch = x.to(device);
      const Tensor y_batch = y.to(device);

      optimizer.zero_grad();
      const Tensor outputs = replicas(x_batch);
      const Tensor loss = nn::cross_entropy(outputs, y_batch);
      loss.backward();
      optimizer.step();

      total_loss += loss.item();
    }
    const double avg_loss = total_loss / static_cast<double>(dataloader.size());
    fmt::print("Epoch {}, Avg Loss: {:.4f}\n", epoch + 1, avg_loss);
  }
  fmt::print("Training complete\n");
}

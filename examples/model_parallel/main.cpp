// Learns handwritten digits with a model whose two parts live on two devices. The forward pass moves the activations,
// and gradients take the same way back. Only one device works at a time; the sample "pipeline" mends that.

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/data/preprocessing.h>
#include <tandem/tandem.h>

#include "../common/cli.h"
#include "../common/digits.h"
#include "../common/epochs.h"
#include "../common/evaluate.h"

namespace {

using namespace tandem;

struct TwoParts : nn::Module<TwoParts> {
  TwoParts(std::int64_t pixels, std::int64_t classes, Device first_device, Device second_device)
      : first(pixels, 128), second(128, classes), device1(first_device), device2(second_device) {
    adopt("first", first);
    adopt("second", second);
    first.to(device1);
    second.to(device2);
  }

  Tensor forward(const Tensor& x) const { return second(relu(first(x.to(device1))).to(device2)); }

  nn::Linear first, second;
  Device device1, device2;
};

int model_parallel(int argc, char** argv) {
  example::PlainOptions options{.epochs = 5, .lr = 2e-3};
  const bool on_gpus = cuda::device_count() > 1;
  std::string device1 = on_gpus ? "cuda:0" : "cpu:0";
  std::string device2 = on_gpus ? "cuda:1" : "cpu:1";
  CLI::App app("Learns handwritten digits with a model on two devices.", "model_parallel");
  example::add_learning_options(app, options, example::kDigitsFolder, "Learning rate of Adam");
  example::add_text(app, "--first", "NAME", "Device of the first part", device1);
  example::add_text(app, "--second", "NAME", "Device of the second part", device2);
  app.footer(
      "Examples:\n"
      "  model_parallel                                   two GPUs, or two parts of the CPU\n"
      "  model_parallel --first cuda:0 --second cpu:0     a part that the GPU has no room for");
  if (const auto code = example::parse(app, options, argc, argv)) {
    return *code;
  }

  const example::Digits digits = example::load_digits(options.data);
  const auto scaler = data::Standardizer::of_all(digits.train_x);
  const data::TensorDataset train(scaler.apply(digits.train_x), digits.train_y);
  TwoParts model(digits.train_x.size(1), digits.classes, Device(device1), Device(device2));
  optim::Adam adam(model.parameters(), {.lr = options.lr});  // parameters of both devices
  data::DataLoader loader(train, {.batch_size = options.batch_size, .shuffle = true});
  example::run_epochs(options, loader, !options.quiet, [&](const Tensor& x, const Tensor& y) {
    adam.zero_grad();
    const Tensor loss = nn::cross_entropy(model(x), y.to(model.device2));
    loss.backward();
    adam.step();
    return loss;
  });
  const Tensor outputs = example::predict(model, scaler.apply(digits.test_x)).to("cpu:0");
  fmt::print("first part on {}, second part on {}\n", to_string(model.device1), to_string(model.device2));
  fmt::print("test accuracy: {:.2f} %\n", 100 * example::share_right(outputs, digits.test_y));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return example::run_main(argc, argv, model_parallel); }

// Learns handwritten digits with a small convolutional net (LeCun et al., "Gradient-based learning applied to document
// recognition", 1998).

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include <tandem/tandem.h>

#include "../common/cli.h"
#include "../common/digits.h"
#include "picture.h"

namespace {

using namespace tandem;

struct LeNet : nn::Module<LeNet> {
  nn::Conv2d conv1 = child("conv1", nn::Conv2d(1, 6, 5, {.padding = 2}));
  nn::Conv2d conv2 = child("conv2", nn::Conv2d(6, 16, 5));
  nn::Linear fc1 = child("fc1", nn::Linear(400, 120));
  nn::Linear fc2 = child("fc2", nn::Linear(120, 84));
  nn::Linear fc3 = child("fc3", nn::Linear(84, 10));

  Tensor forward(const Tensor& images) const {
    Tensor x = max_pool2d(relu(conv1(images)), 2);
    x = max_pool2d(relu(conv2(x)), 2).flatten(1);
    return fc3(relu(fc2(relu(fc1(x)))));
  }
};

// Rows of pixels as images of 28 x 28. Those of 8 x 8 are enlarged three times and get a border.
Tensor as_images(const Tensor& rows) {
  const std::int64_t count = rows.size(0);
  if (rows.size(1) == 28 * 28) {
    return rows.reshape({count, 1, 28, 28});
  }
  if (rows.size(1) != 8 * 8) {
    throw ConfigError(fmt::format("--data: images must have 28x28 or 8x8 pixels, got {} of them", rows.size(1)));
  }
  const Tensor large = rows.reshape({count, 1, 8, 1, 8, 1}).expand({count, 1, 8, 3, 8, 3}).reshape({count, 1, 24, 24});
  Tensor images = zeros({count, 1, 28, 28});
  images.slice(2, 2, 26).slice(3, 2, 26).copy_(large);
  return images;
}

// The probabilities of the classes, some images at a time.
Tensor predict(const LeNet& model, const Tensor& images) {
  const NoGradGuard no_grad;
  std::vector<Tensor> parts;
  for (std::int64_t begin = 0; begin < images.size(0); begin += 500) {
    parts.push_back(softmax(model(images.slice(0, begin, std::min(begin + 500, images.size(0)))), 1));
  }
  return cat(parts);
}

double share_right(const Tensor& probabilities, const Tensor& labels) {
  return (probabilities.argmax(1) == labels).to(DType::f64).mean().item<double>();
}

struct Options {
  std::string data;
  std::string out;
  std::int64_t epochs = 10;
  std::int64_t batch_size = 64;
  double lr = 2e-3;
  std::int64_t seed = 0;
  int threads = 0;
  bool json = false;
  bool quiet = false;
};

void add_options(CLI::App& app, Options& options) {
  example::add_path(app, "--data", "Folder with MNIST's IDX files; when not given, the bundled digits", options.data);
  example::add_whole<std::int64_t>(app, "--epochs", "Passes over the training images", options.epochs, 1, 1'000'000);
  example::add_whole<std::int64_t>(app, "--batch-size", "Images of a step", options.batch_size, 1, 1'000'000);
  example::add_number(app, "--lr", "RATE", "Learning rate of Adam, which falls to 0", options.lr, 0, 1);
  example::add_whole<std::int64_t>(app, "--seed", "Seed of all random numbers", options.seed, 0, INT64_MAX);
  example::add_whole<int>(app, "--threads", "Threads; 0: all cores", options.threads, 0, 256);
  example::add_path(app, "--out", "Run folder; when not given, runs/lenet-TIME. An earlier run there goes on",
                    options.out);
  app.add_flag("--json", options.json, "Print one JSON object as the last line");
  app.add_flag("--quiet", options.quiet, "No progress");
  app.footer(
      "Examples:\n"
      "  lenet                             the bundled digits, half a minute\n"
      "  lenet --data ~/mnist --epochs 5   MNIST's files\n"
      "  lenet --out runs/a --epochs 20    again after Ctrl-C: goes on");
}

int lenet(int argc, char** argv) {
  Options options;
  CLI::App app("Learns handwritten digits with a small convolutional net.", "lenet");
  add_options(app, options);
  if (const auto code = cli::parse(app, argc, argv)) {
    return *code;
  }
  if (options.threads > 0) {
    set_num_threads(options.threads);
  }
  manual_seed(static_cast<std::uint64_t>(options.seed));

  const example::Digits digits = example::load_digits(options.data);
  const auto scaler = data::Standardizer::of_all(digits.train_x);
  const Tensor test_images = as_images(scaler.apply(digits.test_x));
  const data::TensorDataset train(as_images(scaler.apply(digits.train_x)), digits.train_y);

  LeNet model;
  optim::Adam adam(model.parameters(), {.lr = options.lr});
  data::DataLoader loader(train, {.batch_size = options.batch_size, .shuffle = true});
  optim::CosineAnnealingLR schedule(adam, {.T_max = options.epochs * loader.size()});
  checkpoint::Run run(options.out, {.program = "lenet"});
  run.track(model, adam, schedule, loader);
  telemetry::Progress progress({.total = train.size(), .unit = "images", .enabled = !options.quiet});
  for (const std::int64_t epoch : run.epochs(options.epochs)) {
    progress.start_epoch(epoch + 1, options.epochs);
    for (const auto& [x, y] : loader) {
      adam.zero_grad();
      const Tensor loss = cross_entropy(model(x), y);
      loss.backward();
      adam.step();
      schedule.step();
      progress.advance(x.size(0));
      run.step(loss);
    }
    const double accuracy = share_right(predict(model, test_images), digits.test_y);
    progress.set("test accuracy", fmt::format("{:.2f} %", 100 * accuracy));
    progress.end_epoch();
    run.log({{"epoch", epoch + 1}, {"test_accuracy", accuracy}});
  }
  const Tensor probabilities = predict(model, test_images);
  const double accuracy = share_right(probabilities, digits.test_y);
  run.folder()->write_file("lenet.svg",
                           example::picture(model.conv1.weight, test_images, digits.test_y, probabilities));
  fmt::print("test accuracy: {:.2f} %\n", 100 * accuracy);
  fmt::print("run folder: {}  (metrics.jsonl, lenet.svg: windows, confusion, the worst digits)\n",
             run.folder()->path());
  if (options.json) {
    example::print_result_json({{"test_accuracy", accuracy}, {"epochs", options.epochs}, {"seed", options.seed}});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return example::run_main(argc, argv, lenet); }

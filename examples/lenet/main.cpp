// Learns handwritten digits with a small convolutional net (LeCun et al., "Gradient-based learning applied to document
// recognition", 1998).

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/tandem.h>

#include "../common/cli.h"
#include "../common/digits.h"
#include "../common/evaluate.h"
#include "../common/picture.h"
#include "../common/precision.h"

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

// The windows of the first layer: blue adds, orange takes away.
void draw_windows(example::Picture& picture, const Tensor& windows) {
  picture.title(20, "First layer: blue adds, orange takes away");
  const std::int64_t size = windows.size(-1);
  const double largest = windows.abs().max().item();
  const std::vector<double> values = windows.to_vector<double>();
  const double cell = 90.0 / static_cast<double>(size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t window = at / (size * size);
    const std::int64_t band = window / 3;
    const std::int64_t row = at / size % size;
    const double x = 20 + 105 * static_cast<double>(window % 3) + cell * static_cast<double>(at % size);
    const double y = example::Picture::kTop + 105 * static_cast<double>(band) + cell * static_cast<double>(row);
    const double value = values[i] / largest;
    picture.square(x, y, cell, value > 0 ? example::shade(value, 0, 114, 178) : example::shade(-value, 213, 94, 0));
  }
}

int lenet(int argc, char** argv) {
  example::PlainOptions options{.lr = 2e-3};
  std::string types = "f32";
  CLI::App app("Learns handwritten digits with a small convolutional net.", "lenet");
  example::add_plain_options(app, options, example::kDigitsFolder, "Learning rate of Adam, which falls to 0");
  example::add_precision(app, types);
  app.footer(
      "Examples:\n"
      "  lenet                             the bundled digits, half a minute\n"
      "  lenet --data ~/mnist --epochs 5   MNIST's files\n"
      "  lenet --out runs/a --epochs 20    again after Ctrl-C: goes on");
  if (const auto code = example::parse(app, options, argc, argv)) {
    return *code;
  }

  const example::Digits digits = example::load_digits(options.data);
  const auto scaler = data::Standardizer::of_all(digits.train_x);
  const Tensor test_images = scaler.apply(example::as_images(digits.test_x, 28));
  const data::TensorDataset train(scaler.apply(example::as_images(digits.train_x, 28)), digits.train_y);

  LeNet model;
  optim::Adam adam(model.parameters(), {.lr = options.lr});
  data::DataLoader loader(train, {.batch_size = options.batch_size, .shuffle = true});
  optim::CosineAnnealingLR schedule(adam, {.T_max = options.epochs * loader.size()});
  checkpoint::Run run(options.out, {.program = "lenet"});
  run.track(model, adam, schedule, loader);
  example::Precision precision(types);
  precision.track(run);
  const auto outputs = [&] {
    const AutocastScope autocast = precision.autocast();
    return example::predict(model, test_images).to(DType::f32);
  };
  telemetry::Progress progress({.total = train.size(), .unit = "images", .enabled = !options.quiet});
  for (const std::int64_t epoch : run.epochs(options.epochs)) {
    progress.start_epoch(epoch + 1, options.epochs);
    for (const auto& [x, y] : loader) {
      adam.zero_grad();
      const Tensor loss = [&] {
        const AutocastScope autocast = precision.autocast();
        return cross_entropy(model(x), y);
      }();
      precision.backward(loss);
      precision.step(adam);
      precision.note_step();
      schedule.step();
      progress.advance(x.size(0));
      run.step(loss);
    }
    const double accuracy = example::share_right(outputs(), digits.test_y);
    progress.set("test accuracy", fmt::format("{:.2f} %", 100 * accuracy));
    precision.show(progress);
    progress.end_epoch();
    telemetry::Fields fields{{"epoch", epoch + 1}, {"test_accuracy", accuracy}};
    std::ranges::move(precision.fields(), std::back_inserter(fields));
    run.log(fields);
  }
  if (!options.quiet && !precision.summary().empty()) {
    example::narrate(precision.summary());
  }
  const Tensor probabilities = softmax(outputs(), 1);
  const double accuracy = example::share_right(probabilities, digits.test_y);
  example::Picture picture(1010, 400);
  draw_windows(picture, model.conv1.weight);
  example::draw_results(picture, 345, test_images, digits.test_y, probabilities, digits.class_names());
  run.folder()->write_file("lenet.svg", picture.svg());
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

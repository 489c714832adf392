// Learns to describe handwritten digits by a few numbers, and to draw them again from these, with convolutions (Masci
// et al., "Stacked convolutional auto-encoders for hierarchical feature extraction", 2011).

#include <algorithm>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include <tandem/tandem.h>

#include "../common/cli.h"
#include "../common/digits.h"
#include "../common/evaluate.h"
#include "../common/picture.h"

namespace {

using namespace tandem;

struct Autoencoder : nn::Module<Autoencoder> {
  explicit Autoencoder(std::int64_t code)
      : encoder(child("encoder", nn::Sequential(nn::Conv2d(1, 16, 3, {.stride = 2, .padding = 1}), nn::ReLU(),  // 14x14
                                                nn::Conv2d(16, 32, 3, {.stride = 2, .padding = 1}), nn::ReLU(),  // 7x7
                                                nn::Flatten(), nn::Linear(32 * 7 * 7, code)))),
        widen(child("widen", nn::Linear(code, 32 * 7 * 7))),
        decoder(child("decoder",
                      nn::Sequential(nn::ConvTranspose2d(32, 16, 4, {.stride = 2, .padding = 1}), nn::ReLU(),
                                     nn::ConvTranspose2d(16, 1, 4, {.stride = 2, .padding = 1}), nn::Sigmoid()))) {}

  Tensor forward(const Tensor& images) const {
    return decoder(relu(widen(encoder(images))).reshape({images.size(0), 32, 7, 7}));
  }

  nn::Sequential encoder;
  nn::Linear widen;
  nn::Sequential decoder;
};

// The first test images, and below each what the decoder makes of its code.
std::string draw(const Tensor& images, const Tensor& drawn) {
  constexpr std::int64_t kColumns = 10;
  example::Picture picture(720, 370);
  picture.title(20, "Test images, and below each the digit drawn from its code");
  for (std::int64_t i = 0; i < std::min(2 * kColumns, images.size(0)); ++i) {
    const std::int64_t row = i / kColumns;
    const double x = 20 + 68 * static_cast<double>(i % kColumns);
    const double y = example::Picture::kTop + 145 * static_cast<double>(row);
    picture.image(x, y, 60, images[i], 0, 1);
    picture.image(x, y + 64, 60, drawn[i], 0, 1);
  }
  return picture.svg();
}

int autoencoder(int argc, char** argv) {
  example::PlainOptions options{.epochs = 20, .lr = 2e-3};
  std::int64_t code = 16;
  CLI::App app("Learns to draw handwritten digits again from a few numbers.", "autoencoder");
  example::add_plain_options(app, options, example::kDigitsFolder, "Learning rate of Adam, which falls to 0");
  example::add_whole<std::int64_t>(app, "--code", "Numbers that describe an image", code, 1, 10'000);
  app.footer(
      "Examples:\n"
      "  autoencoder                             the bundled digits, half a minute\n"
      "  autoencoder --code 2                    what two numbers can tell\n"
      "  autoencoder --data ~/mnist --epochs 5   MNIST's files");
  if (const auto exit_code = example::parse(app, options, argc, argv)) {
    return *exit_code;
  }

  const example::Digits digits = example::load_digits(options.data);
  const double largest = std::max(digits.train_x.max().item(), 1.0);
  const Tensor test_x = example::as_images(digits.test_x / largest, 28).clamp(0, 1);
  const data::TensorDataset train(example::as_images(digits.train_x / largest, 28));
  const double blurred = mse_loss(train.x().mean({0}, true).expand(test_x.shape()), test_x).item();

  Autoencoder model(code);
  optim::Adam adam(model.parameters(), {.lr = options.lr});
  data::DataLoader loader(train, {.batch_size = options.batch_size, .shuffle = true});
  optim::CosineAnnealingLR schedule(adam, {.T_max = options.epochs * loader.size()});
  checkpoint::Run run(options.out, {.program = "autoencoder"});
  run.track(model, adam, schedule, loader);
  telemetry::Progress progress({.total = train.size(), .unit = "images", .enabled = !options.quiet});
  for (const std::int64_t epoch : run.epochs(options.epochs)) {
    progress.start_epoch(epoch + 1, options.epochs);
    for (const auto& [x, no_target] : loader) {
      adam.zero_grad();
      const Tensor loss = mse_loss(model(x), x);
      loss.backward();
      adam.step();
      schedule.step();
      progress.advance(x.size(0));
      run.step(loss);
    }
    const double error = mse_loss(example::predict(model, test_x), test_x).item();
    progress.set("test error", fmt::format("{:.5f}", error));
    progress.end_epoch();
    run.log({{"epoch", epoch + 1}, {"test_error", error}});
  }
  const Tensor drawn = example::predict(model, test_x);
  const double error = mse_loss(drawn, test_x).item();
  run.folder()->write_file("autoencoder.svg", draw(test_x, drawn));
  fmt::print("test error: {:.5f}  (mean squared, pixels from 0 to 1; {:.5f} if every drawing is the mean digit)\n",
             error, blurred);
  fmt::print("run folder: {}  (metrics.jsonl, autoencoder.svg: digits, and what was drawn of them)\n",
             run.folder()->path());
  if (options.json) {
    example::print_result_json(
        {{"test_error", error}, {"mean_digit_error", blurred}, {"epochs", options.epochs}, {"seed", options.seed}});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return example::run_main(argc, argv, autoencoder); }

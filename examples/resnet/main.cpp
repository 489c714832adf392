// Learns to tell images apart with a residual net for small images (He et al., "Deep residual learning for image
// recognition", 2015, section 4.2), from images that are shifted and mirrored at random.

#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/tandem.h>

#include "../common/cli.h"
#include "../common/evaluate.h"
#include "../common/picture.h"
#include "images.h"

namespace {

using namespace tandem;

// The paper's initial weights, and no bias: batch normalisation has one.
nn::Conv2d conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride = 1) {
  nn::Conv2d conv(in, out, 3, {.stride = stride, .padding = 1, .bias = false});
  nn::init::kaiming_normal_(conv.weight, 0, nn::init::FanMode::fan_out);
  return conv;
}

// Two convolutions beside a shortcut without parameters (option A of the paper): a block with twice the channels takes
// every second pixel, and zeros for the new channels.
struct Block : nn::Module<Block> {
  Block(std::int64_t in, std::int64_t out)
      : residual(child("residual", nn::Sequential(conv3x3(in, out, out / in), nn::BatchNorm2d(out), nn::ReLU(),
                                                  conv3x3(out, out), nn::BatchNorm2d(out)))) {}

  Tensor forward(const Tensor& x) const {
    const Tensor change = residual(x);
    const std::int64_t more = change.size(1) - x.size(1);
    if (more == 0) {
      return relu(change + x);
    }
    const Tensor every_second = x.slice(2, 0, x.size(2), 2).slice(3, 0, x.size(3), 2);
    return relu(change + pad(every_second, {0, 0, 0, 0, 0, more}));
  }

  nn::Sequential residual;
};

// 6 n + 2 layers: three stages of n blocks, with 16, 32 and 64 channels.
struct ResNet : nn::Module<ResNet> {
  ResNet(std::int64_t channels, std::int64_t classes, std::int64_t n)
      : conv(child("conv", conv3x3(channels, 16))),
        bn(child("bn", nn::BatchNorm2d(16))),
        blocks(child("blocks", nn::ModuleList<Block>())),
        fc(child("fc", nn::Linear(64, classes))) {
    std::int64_t in = 16;
    for (const std::int64_t out : {16, 32, 64}) {
      for (std::int64_t i = 0; i < n; ++i) {
        blocks.emplace_back(std::exchange(in, out), out);
      }
    }
  }

  Tensor forward(const Tensor& images) const {
    Tensor x = relu(bn(conv(images)));
    for (const Block& block : blocks) {
      x = block(x);
    }
    return fc(x.mean({2, 3}));
  }

  nn::Conv2d conv;
  nn::BatchNorm2d bn;
  nn::ModuleList<Block> blocks;
  nn::Linear fc;
};

// Mean and deviation of each channel, measured on the first training images.
data::Normalize measure(const Tensor& train_x) {
  const Tensor first = train_x.slice(0, 0, 5000).to(DType::f32);
  return {first.mean({0, 2, 3}).to_vector<double>(), first.std({0, 2, 3}).to_vector<double>()};
}

int resnet(int argc, char** argv) {
  example::PlainOptions options{.epochs = 12, .batch_size = 64, .lr = 0.1};
  std::int64_t blocks = 3;
  CLI::App app("Learns to tell images apart with a residual net.", "resnet");
  example::add_plain_options(app, options,
                             "Folder with CIFAR-10's binary files or MNIST's IDX files; when not given, the bundled "
                             "digits",
                             "Highest learning rate of SGD, which rises and then falls to nearly 0");
  example::add_whole<std::int64_t>(app, "--blocks", "Blocks of each stage; 3: ResNet-20, 9: ResNet-56", blocks, 1, 200);
  app.footer(
      "Examples:\n"
      "  resnet                          the bundled digits, two minutes\n"
      "  resnet --blocks 1 --epochs 2    ResNet-8, some seconds\n"
      "  resnet --data ~/cifar-10-batches-bin --epochs 10    an hour on two cores\n"
      "CIFAR-10 is at https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz");
  if (const auto code = example::parse(app, options, argc, argv)) {
    return *code;
  }

  const example::Images images = example::load_images(options.data);
  const auto as_float = [](const Tensor& x) { return x.to(DType::f32); };
  const data::Normalize normalize = measure(images.train_x);
  const Tensor test_x = normalize(as_float(images.test_x));
  const std::int64_t side = images.train_x.size(2);
  const data::MapDataset train(data::TensorDataset(images.train_x, images.train_y),
                               {data::RandomCrop(side, {.padding = side / 8}),
                                data::RandomHorizontalFlip(images.may_flip ? 0.5 : 0), as_float, normalize});

  ResNet model(images.train_x.size(1), std::ssize(images.classes), blocks);
  optim::SGD sgd(model.parameters(), {.lr = options.lr, .momentum = 0.9, .weight_decay = 1e-4});
  data::DataLoader loader(train, {.batch_size = options.batch_size, .shuffle = true, .num_workers = 2});
  optim::OneCycleLR schedule(sgd, {.max_lr = {options.lr}, .total_steps = options.epochs * loader.size()});
  checkpoint::Run run(options.out, {.program = "resnet"});
  run.track(model, sgd, schedule, loader);
  telemetry::Progress progress({.total = train.size(), .unit = "images", .enabled = !options.quiet});
  for (const std::int64_t epoch : run.epochs(options.epochs)) {
    progress.start_epoch(epoch + 1, options.epochs);
    for (const auto& [x, y] : loader) {
      sgd.zero_grad();
      const Tensor loss = cross_entropy(model(x), y);
      loss.backward();
      sgd.step();
      schedule.step();
      progress.advance(x.size(0));
      run.step(loss);
    }
    const double accuracy = example::share_right(example::predict(model, test_x), images.test_y);
    progress.set("test accuracy", fmt::format("{:.2f} %", 100 * accuracy));
    progress.end_epoch();
    run.log({{"epoch", epoch + 1}, {"test_accuracy", accuracy}});
  }
  const Tensor probabilities = softmax(example::predict(model, test_x), 1);
  const double accuracy = example::share_right(probabilities, images.test_y);
  example::Picture picture(685, 400);
  example::draw_results(picture, 20, images.test_x, images.test_y, probabilities, images.classes);
  run.folder()->write_file("resnet.svg", picture.svg());
  fmt::print("test accuracy: {:.2f} %\n", 100 * accuracy);
  fmt::print("run folder: {}  (metrics.jsonl, resnet.svg: confusion, the worst images)\n", run.folder()->path());
  if (options.json) {
    example::print_result_json({{"test_accuracy", accuracy}, {"epochs", options.epochs}, {"seed", options.seed}});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return example::run_main(argc, argv, resnet); }

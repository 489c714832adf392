// Learns handwritten digits with a model whose layers are divided into stages, which work on micro-batches at the same
// time. Shows how the layers were divided and where the time went.

#include <algorithm>
#include <cstddef>
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
#include "../common/training.h"

namespace {

using namespace tandem;

int pipeline(int argc, char** argv) {
  example::PlainOptions options{.epochs = 5, .batch_size = 128, .lr = 2e-3};
  std::int64_t stages = 2;
  std::int64_t microbatches = 4;
  std::string schedule = "1f1b";
  std::string split_by = "time";
  CLI::App app("Learns handwritten digits with a pipeline of stages on several devices.", "pipeline");
  example::add_learning_options(app, options, example::kDigitsFolder, "Learning rate of Adam");
  example::add_whole<std::int64_t>(app, "--stages", "Stages; on all GPUs in turn, or on as many parts of the CPU",
                                   stages, 1, 9);
  example::add_whole<std::int64_t>(app, "--microbatches", "Parts of a batch", microbatches, 1, 1024);
  example::add_choice(app, "--schedule", "1f1b (fewer activations at a time) or gpipe", schedule, {"1f1b", "gpipe"});
  example::add_choice(app, "--split-by", "Divide the layers by their time or by their bytes", split_by,
                      {"time", "bytes"});
  app.footer(
      "Examples:\n"
      "  pipeline                                  two stages\n"
      "  pipeline --stages 4 --microbatches 16     a smaller bubble\n"
      "  pipeline --microbatches 1                 one stage waits for the other");
  if (const auto code = example::parse(app, options, argc, argv)) {
    return *code;
  }

  const example::Digits digits = example::load_digits(options.data);
  const auto scaler = data::Standardizer::of_all(digits.train_x);
  const data::TensorDataset train(scaler.apply(digits.train_x), digits.train_y);
  data::DataLoader loader(train, {.batch_size = options.batch_size, .shuffle = true});

  nn::Sequential model = example::make_mlp(digits.train_x.size(1), {256, 256, 256}, digits.classes, 0.1);
  const Tensor sample = train.x().narrow(0, 0, std::max<std::int64_t>(options.batch_size / microbatches, 1));
  const auto count = static_cast<std::size_t>(stages);
  const parallel::StageSplit split =
      split_by == "time" ? parallel::split_by_time(model, sample, count) : parallel::split_by_bytes(model, count);
  std::vector<Device> devices;
  for (int s = 0; s < stages; ++s) {
    devices.push_back(cuda::is_available() ? Device(DeviceType::cuda, s % cuda::device_count())
                                           : Device(DeviceType::cpu, s % cpu_device_count()));
  }
  parallel::Pipeline pipeline(
      model, devices,
      {.microbatches = microbatches,
       .schedule = schedule == "gpipe" ? parallel::Schedule::gpipe : parallel::Schedule::one_f_one_b,
       .split = split.layers});
  optim::Adam adam(pipeline.parameters(), {.lr = options.lr});
  example::run_epochs(options, loader, !options.quiet, [&](const Tensor& x, const Tensor& y) {
    adam.zero_grad();
    const Tensor loss = pipeline.step(x, y, [](const Tensor& out, const Tensor& t) { return cross_entropy(out, t); });
    adam.step();
    return loss;
  });
  const NoGradGuard no_grad;
  model.eval();
  const Tensor outputs = pipeline(scaler.apply(digits.test_x)).to("cpu:0");
  fmt::print("{}{}", to_string(split), to_string(pipeline.report()));
  fmt::print("test accuracy: {:.2f} %\n", 100 * example::share_right(outputs, digits.test_y));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return example::run_main(argc, argv, pipeline); }

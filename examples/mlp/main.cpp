// Learns handwritten digits with a multi-layer perceptron.

#include <algorithm>
#include <cstdio>
#include <limits>

#include <fmt/format.h>

#include <tandem/data/standardizer.h>
#include <tandem/tandem.h>
#include <tandem/telemetry/curves.h>

#include "../common/cli.h"
#include "../common/training.h"
#include "digits.h"

namespace {

using namespace tandem;

double accuracy(const Tensor& logits, const Tensor& labels) {
  const Tensor guesses = logits.argmax(1);
  const auto guess = guesses.span<std::int64_t>();
  const auto label = labels.span<std::int64_t>();
  std::size_t right = 0;
  for (std::size_t i = 0; i < label.size(); ++i) {
    right += guess[i] == label[i] ? 1 : 0;
  }
  return static_cast<double>(right) / static_cast<double>(label.size());
}

int mlp(int argc, char** argv) {
  // Tuned on writers held out of the training file; the test file was not looked at.
  example::CommonOptions options{
      .epochs = 30, .batch_size = 64, .lr = 3e-3, .optimizer = "adamw", .hidden = {256, 128}};
  example::Recipe recipe{.weight_decay = 0.01, .dropout = 0.3};
  std::string schedule = "cosine";
  std::string scaling = "standard";

  CLI::App app("Learns handwritten digits with a multi-layer perceptron.", "mlp");
  example::add_common_options(app, options, "Folder with MNIST's IDX files; when not given, the bundled digits");
  example::add_number(app, "--dropout", "P", "Probability of dropping a hidden unit", recipe.dropout, 0, 1);
  example::add_number(app, "--weight-decay", "RATE", "Weight decay of the optimizer", recipe.weight_decay, 0,
                      std::numeric_limits<double>::infinity());
  example::add_choice(app, "--schedule", "Learning rate over time: cosine (to zero) or constant", schedule,
                      {"cosine", "constant"});
  example::add_choice(app, "--scaling", "Pixels: standard (mean 0, deviation 1) or unit (divided by the largest)",
                      scaling, {"standard", "unit"});
  app.footer(
      "Examples:\n"
      "  mlp                                  the bundled digits, a few seconds\n"
      "  mlp --hidden 512 --epochs 10         another net\n"
      "  mlp --data ~/mnist --json --quiet    MNIST files; the last line is JSON");
  if (const auto code = example::parse(app, argc, argv)) {
    return *code;
  }
  recipe.cosine = schedule == "cosine";
  if (options.threads > 0) {
    set_num_threads(options.threads);
  }
  manual_seed(options.seed);

  const example::Digits digits = example::load_digits(options.data);
  Tensor train_x;
  Tensor test_x;
  if (scaling == "standard") {
    const auto scaler = data::Standardizer::of_all(digits.train_x);
    train_x = scaler.apply(digits.train_x);
    test_x = scaler.apply(digits.test_x);
  } else {
    const double largest = std::max(digits.train_x.max().item(), 1.0);
    train_x = digits.train_x / largest;
    test_x = digits.test_x / largest;
  }
  const data::TensorDataset train(train_x, digits.train_y);

  nn::Sequential model = example::make_mlp(train_x.size(1), options.hidden, digits.classes, recipe.dropout);
  model.to(Device(options.device));
  example::Trainer trainer(
      options, recipe, model, train, [](const Tensor& out, const Tensor& y) { return nn::cross_entropy(out, y); },
      "images");
  telemetry::RunFolder folder({.program = "mlp", .path = options.out});
  folder.write_config(example::common_fields("mlp", options, recipe));
  if (!options.quiet) {
    example::narrate(fmt::format("{}: {} to train, {} to test", digits.name, train.size(), test_x.size(0)));
  }

  std::vector<double> test_accuracy;
  const double seconds = trainer.run(folder, test_x, [&](const Tensor& logits) {
    test_accuracy.push_back(accuracy(logits, digits.test_y));
    return std::vector<std::pair<std::string, double>>{{"test_accuracy", test_accuracy.back()}};
  });

  telemetry::Curve loss{.name = "training"};
  telemetry::Curve right{.name = "test"};
  for (std::size_t epoch = 0; epoch < trainer.history().size(); ++epoch) {
    loss.x.push_back(static_cast<double>(epoch + 1));
    loss.y.push_back(trainer.history()[epoch].loss);
    right.x.push_back(static_cast<double>(epoch + 1));
    right.y.push_back(100 * test_accuracy[epoch]);
  }
  telemetry::write_curves(
      folder.file("curves.svg"), "mlp: " + digits.name,
      {{.title = "Loss", .x_label = "epoch", .y_label = "cross-entropy", .curves = {loss}, .log_y = true},
       {.title = "Accuracy", .x_label = "epoch", .y_label = "accuracy, %", .curves = {right}}});

  fmt::print("test accuracy: {:.2f} %  ({} epochs in {:.2f} s of training)\n", 100 * test_accuracy.back(),
             options.epochs, seconds);
  fmt::print("run folder: {}  (config.json, metrics.jsonl, curves.svg)\n", folder.path());
  if (options.json) {
    example::print_result_json({{"test_accuracy", test_accuracy.back()},
                                {"train_seconds", seconds},
                                {"images_per_second", static_cast<double>(train.size() * options.epochs) / seconds},
                                {"epochs", options.epochs},
                                {"seed", static_cast<std::int64_t>(options.seed)}});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return example::run_main(argc, argv, mlp); }

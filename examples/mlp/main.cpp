// Learns handwritten digits with a multi-layer perceptron.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/data/preprocessing.h>
#include <tandem/tandem.h>
#include <tandem/telemetry/curves.h>

#include "../common/cli.h"
#include "../common/digits.h"
#include "../common/training.h"

namespace {

using namespace tandem;

double count_right(const Tensor& logits, const Tensor& labels) {
  const Tensor guesses = logits.argmax(1);
  const auto guess = guesses.span<std::int64_t>();
  const auto label = labels.span<std::int64_t>();
  double right = 0;
  for (std::size_t i = 0; i < label.size(); ++i) {
    right += guess[i] == label[i] ? 1 : 0;
  }
  return right;
}

struct Pixels {
  data::TensorDataset train;
  data::TensorDataset test;
};

Pixels scale(const example::Digits& digits, const std::string& scaling) {
  if (scaling == "standard") {
    const auto scaler = data::Standardizer::of_all(digits.train_x);
    return {data::TensorDataset(scaler.apply(digits.train_x), digits.train_y),
            data::TensorDataset(scaler.apply(digits.test_x), digits.test_y)};
  }
  const double largest = std::max(digits.train_x.max().item(), 1.0);
  return {data::TensorDataset(digits.train_x / largest, digits.train_y),
          data::TensorDataset(digits.test_x / largest, digits.test_y)};
}

void write_picture(const telemetry::RunFolder& folder, const example::Digits& digits, const example::History& history) {
  telemetry::Curve loss{.name = "training"};
  telemetry::Curve right{.name = "test"};
  for (std::size_t epoch = 0; epoch < history.loss.size(); ++epoch) {
    loss.x.push_back(static_cast<double>(epoch + 1));
    loss.y.push_back(history.loss[epoch]);
    right.x.push_back(static_cast<double>(epoch + 1));
    right.y.push_back(100 * history.score[epoch]);
  }
  telemetry::write_curves(
      folder.file("curves.svg"), "mlp: " + digits.name,
      {{.title = "Loss", .x_label = "epoch", .y_label = "cross-entropy", .curves = {loss}, .log_y = true},
       {.title = "Accuracy", .x_label = "epoch", .y_label = "accuracy, %", .curves = {right}}});
}

// Runs on each rank. Only the leading rank prints and writes files.
void train(const example::CommonOptions& options, const example::Recipe& recipe, const example::Digits& digits,
           const Pixels& pixels, const example::Rank& rank) {
  nn::Sequential model = example::make_mlp(pixels.train.x().size(1), options.hidden, digits.classes, recipe.dropout);
  model.to(rank.device);
  example::Trainer trainer(
      options, recipe, rank, model, pixels.train,
      [](const Tensor& out, const Tensor& y) { return nn::cross_entropy(out, y); }, "images");
  const example::Score score{.name = "test_accuracy", .sum = count_right, .finish = [](double mean) { return mean; }};
  const auto run = example::open_run(options, "mlp");
  if (!rank.leads()) {
    trainer.run(*run, pixels.test, score);
    return;
  }

  telemetry::RunFolder& folder = *run->folder();
  folder.write_config(example::common_fields("mlp", options, recipe, rank));
  if (!options.quiet) {
    example::narrate(fmt::format("{}: {} to train, {} to test", digits.name, pixels.train.size(), pixels.test.size()));
  }
  const double seconds = trainer.run(*run, pixels.test, score);
  const double accuracy = trainer.history().score.back();
  write_picture(folder, digits, trainer.history());
  fmt::print("{}", trainer.diagnosis());
  fmt::print("test accuracy: {:.2f} %  ({} epochs in {:.2f} s of training)\n", 100 * accuracy, options.epochs, seconds);
  fmt::print("run folder: {}  (config.json, metrics.jsonl, curves.svg, model.safetensors)\n", folder.path());
  if (options.json) {
    example::print_result_json(
        {{"test_accuracy", accuracy},
         {"train_seconds", seconds},
         {"images_per_second", static_cast<double>(pixels.train.size() * options.epochs) / seconds},
         {"epochs", options.epochs},
         {"seed", static_cast<std::int64_t>(options.seed)}});
  }
}

int mlp(int argc, char** argv) {
  // Tuned on writers held out of the training file, without looking at the test file.
  example::CommonOptions options{
      .epochs = 30, .batch_size = 64, .lr = 3e-3, .optimizer = "adamw", .hidden = {256, 128}};
  example::Recipe recipe{.weight_decay = 0.01, .dropout = 0.3};
  std::string schedule = "cosine";
  std::string scaling = "standard";

  CLI::App app("Learns handwritten digits with a multi-layer perceptron.", "mlp");
  example::add_common_options(app, options, example::kDigitsFolder);
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
      "  mlp --data ~/mnist --json --quiet    MNIST files; the last line is JSON\n"
      "  mlp --ranks 2 --batch-size 32        two ranks, threads of this process\n"
      "  tandem run -n 2 mlp --batch-size 32  two ranks, processes\n"
      "  mlp --resume runs/mlp-20261126-0912  go on after a crash or Ctrl-C\n"
      "  mlp --ranks 2 --report               why two are not twice as fast as one");
  if (const auto code = example::parse(app, options, argc, argv)) {
    return *code;
  }
  recipe.cosine = schedule == "cosine";
  if (options.threads > 0) {
    set_num_threads(options.threads);
  }
  manual_seed(options.seed);

  const example::Digits digits = example::load_digits(options.data);
  const Pixels pixels = scale(digits, scaling);
  example::as_ranks(options, [&](const example::Rank& rank) { train(options, recipe, digits, pixels, rank); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return example::run_main(argc, argv, mlp); }

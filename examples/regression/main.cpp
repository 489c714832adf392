// Predicts a number from the columns of a table: house prices, or a column of the user's CSV file.

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/data/preprocessing.h>
#include <tandem/tandem.h>
#include <tandem/telemetry/curves.h>

#include "../common/cli.h"
#include "../common/training.h"
#include "table.h"

namespace {

using namespace tandem;

// House prices need no decimals; small targets do.
std::string readable(double value) {
  return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

// The net learns the target scaled to mean 0 and deviation 1. Errors are reported in the target's own unit.
struct Task {
  example::RegressionData data;
  data::Standardizer scaler;
  data::TensorDataset train;
  data::TensorDataset test;

  explicit Task(example::RegressionData table)
      : data(std::move(table)),
        scaler(data::Standardizer::per_column(data.train_y)),
        train(data.train_x, scaler.apply(data.train_y).to(DType::f32)),
        test(data.test_x, data.test_y) {}

  example::Score score() const {
    return {.name = "test_rmse",
            .sum =
                [this](const Tensor& output, const Tensor& y) {
                  return nn::mse_loss(scaler.invert(output.to(DType::f64)), y, Reduction::sum).item();
                },
            .finish = [](double mean) { return std::sqrt(mean); }};
  }
};

void write_picture(const telemetry::RunFolder& folder, const Task& task, double baseline,
                   const example::History& history) {
  const double unit = task.scaler.std().item();
  telemetry::Curve train{.name = "training"};
  telemetry::Curve test{.name = "test"};
  telemetry::Curve squares{.name = "least squares"};
  for (std::size_t epoch = 0; epoch < history.loss.size(); ++epoch) {
    const double x = static_cast<double>(epoch + 1);
    train.x.push_back(x);
    train.y.push_back(unit * std::sqrt(history.loss[epoch]));
    test.x.push_back(x);
    test.y.push_back(history.score[epoch]);
    squares.x.push_back(x);
    squares.y.push_back(baseline);
  }
  telemetry::write_curves(folder.file("curves.svg"), "regression: " + task.data.name,
                          {{.title = "Error",
                            .x_label = "epoch",
                            .y_label = "RMSE of " + task.data.target,
                            .curves = {train, test, squares}}});
}

// Runs on each rank. Only the leading rank prints and writes files.
void train(const example::CommonOptions& options, const example::Recipe& recipe, const Task& task,
           const example::Rank& rank) {
  nn::Sequential model = example::make_mlp(task.train.x().size(1), options.hidden, 1, recipe.dropout);
  model.to(rank.device);
  example::Trainer trainer(
      options, recipe, rank, model, task.train, [](const Tensor& out, const Tensor& y) { return nn::mse_loss(out, y); },
      "rows");
  const auto run = example::open_run(options, "regression");
  if (!rank.leads()) {
    trainer.run(*run, task.test, task.score());
    return;
  }

  telemetry::RunFolder& folder = *run->folder();
  telemetry::Fields config = example::common_fields("regression", options, recipe, rank);
  config.push_back({"target", task.data.target});
  folder.write_config(config);
  const double baseline = example::least_squares_rmse(task.data);
  if (!options.quiet) {
    example::narrate(fmt::format("{}: {} rows to train, {} to test; predicting '{}'", task.data.name, task.train.size(),
                                 task.test.size(), task.data.target));
    if (!task.data.categories.empty()) {
      example::narrate("taken as categories: " + task.data.categories);
    }
  }
  const double seconds = trainer.run(*run, task.test, task.score());
  const double rmse = trainer.history().score.back();
  write_picture(folder, task, baseline, trainer.history());
  fmt::print("{}", trainer.diagnosis());
  fmt::print("test RMSE: {}  (linear least squares: {}; {} epochs in {:.2f} s of training)\n", readable(rmse),
             readable(baseline), options.epochs, seconds);
  fmt::print("run folder: {}  (config.json, metrics.jsonl, curves.svg, model.safetensors)\n", folder.path());
  if (options.json) {
    example::print_result_json({{"test_rmse", rmse},
                                {"baseline_rmse", baseline},
                                {"train_seconds", seconds},
                                {"seed", static_cast<std::int64_t>(options.seed)}});
  }
}

int regression(int argc, char** argv) {
  // Tuned on a part of the training rows, without looking at the test part.
  example::CommonOptions options{
      .epochs = 60, .batch_size = 128, .lr = 5e-3, .optimizer = "adamw", .hidden = {128, 64}};
  example::Recipe recipe{.weight_decay = 0.1};
  std::string target;

  CLI::App app("Predicts a number from the other columns of a table.", "regression");
  example::add_common_options(app, options, "CSV file with a header; when not given, the bundled house prices");
  example::add_text(app, "--target", "COLUMN", "Column to predict (needed with --data)", target);
  example::add_number(app, "--weight-decay", "RATE", "Weight decay of the optimizer", recipe.weight_decay, 0,
                      std::numeric_limits<double>::infinity());
  app.footer(
      "Examples:\n"
      "  regression                                     the bundled house prices\n"
      "  regression --hidden 64 --epochs 20 --lr 0.01   a smaller net\n"
      "  regression --data my.csv --target price        a table of your own\n"
      "  regression --ranks 2 --batch-size 64           two ranks, threads of this\n"
      "                                                 process\n"
      "  tandem run -n 2 regression --batch-size 64     two ranks, processes\n"
      "  regression --resume runs/regression-20261126   go on after a crash or Ctrl-C");
  if (const auto code = example::parse(app, options, argc, argv)) {
    return *code;
  }
  if (target.empty() && !options.data.empty()) {
    example::narrate("error: --data needs --target COLUMN: which column is to be predicted?");
    return 2;
  }
  if (target.empty()) {
    target = "median_house_value";
  }
  if (options.threads > 0) {
    set_num_threads(options.threads);
  }
  manual_seed(options.seed);

  const Task task(example::load_table(options.data, target, options.seed));
  example::as_ranks(options, [&](const example::Rank& rank) { train(options, recipe, task, rank); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return example::run_main(argc, argv, regression); }

// Predicts a number from the columns of a table: house prices, or a CSV file of the user's.

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include <fmt/format.h>

#include <tandem/data/standardizer.h>
#include <tandem/tandem.h>
#include <tandem/telemetry/curves.h>

#include "../common/cli.h"
#include "../common/training.h"
#include "table.h"

namespace {

using namespace tandem;

// House prices need no digits behind the point, small targets do.
std::string readable(double value) {
  return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

int regression(int argc, char** argv) {
  // Tuned on a part of the training rows; the test part was not looked at.
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
      "  regression --data my.csv --target price        a table of your own");
  if (const auto code = example::parse(app, argc, argv)) {
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

  const example::RegressionData data = example::load_table(options.data, target, options.seed);
  // The net learns the target at mean 0 and deviation 1; errors are reported in its own unit.
  const auto scaler = data::Standardizer::per_column(data.train_y);
  const double unit = scaler.std().item();
  const data::TensorDataset train(data.train_x, scaler.apply(data.train_y).to(DType::f32));

  nn::Sequential model = example::make_mlp(data.train_x.size(1), options.hidden, 1, recipe.dropout);
  model.to(Device(options.device));
  example::Trainer trainer(
      options, recipe, model, train, [](const Tensor& out, const Tensor& y) { return nn::mse_loss(out, y); }, "rows");
  telemetry::RunFolder folder({.program = "regression", .path = options.out});
  telemetry::Fields config = example::common_fields("regression", options, recipe);
  config.push_back({"target", target});
  folder.write_config(config);
  const double baseline = example::least_squares_rmse(data);
  if (!options.quiet) {
    example::narrate(fmt::format("{}: {} rows to train, {} to test; predicting '{}'", data.name, train.size(),
                                 data.test_x.size(0), target));
    if (!data.categories.empty()) {
      example::narrate("taken as categories: " + data.categories);
    }
  }

  std::vector<double> test_rmse;
  const double seconds = trainer.run(folder, data.test_x, [&](const Tensor& output) {
    test_rmse.push_back(std::sqrt(nn::mse_loss(scaler.invert(output.to(DType::f64)), data.test_y).item()));
    return std::vector<std::pair<std::string, double>>{{"test_rmse", test_rmse.back()}};
  });

  telemetry::Curve train_curve{.name = "training"};
  telemetry::Curve test_curve{.name = "test"};
  telemetry::Curve baseline_curve{.name = "least squares"};
  for (std::size_t epoch = 0; epoch < test_rmse.size(); ++epoch) {
    const double x = static_cast<double>(epoch + 1);
    train_curve.x.push_back(x);
    train_curve.y.push_back(unit * std::sqrt(trainer.history()[epoch].loss));
    test_curve.x.push_back(x);
    test_curve.y.push_back(test_rmse[epoch]);
    baseline_curve.x.push_back(x);
    baseline_curve.y.push_back(baseline);
  }
  telemetry::write_curves(folder.file("curves.svg"), "regression: " + data.name,
                          {{.title = "Error",
                            .x_label = "epoch",
                            .y_label = "RMSE of " + target,
                            .curves = {train_curve, test_curve, baseline_curve}}});

  fmt::print("test RMSE: {}  (linear least squares: {}; {} epochs in {:.2f} s of training)\n",
             readable(test_rmse.back()), readable(baseline), options.epochs, seconds);
  fmt::print("run folder: {}  (config.json, metrics.jsonl, curves.svg)\n", folder.path());
  if (options.json) {
    example::print_result_json({{"test_rmse", test_rmse.back()},
                                {"baseline_rmse", baseline},
                                {"train_seconds", seconds},
                                {"seed", static_cast<std::int64_t>(options.seed)}});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return example::run_main(argc, argv, regression); }

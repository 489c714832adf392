// Learns handwritten digits on a grid of ranks: several pipelines side by side, each of which trains on its own part of
// the data (data parallelism around pipelines).

#include <cstdint>
#include <memory>
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

struct Grid {
  int data = 2;
  int pipeline = 2;
  std::int64_t microbatches = 4;
};

// Runs on each rank.
void train(const example::PlainOptions& options, const Grid& grid, const example::Digits& digits) {
  parallel::DeviceMesh mesh({{"data", grid.data}, {"pipeline", grid.pipeline}});
  const auto scaler = data::Standardizer::of_all(digits.train_x);
  const data::TensorDataset train(scaler.apply(digits.train_x), digits.train_y);
  // All ranks of a pipeline take the same part of the data.
  const auto sampler = std::make_shared<parallel::DistributedSampler>(
      train, parallel::DistributedSamplerOptions{.seed = static_cast<std::uint64_t>(options.seed),
                                                 .process_group = &mesh["data"]});
  data::DataLoader loader(train, {.batch_size = options.batch_size / grid.data, .sampler = sampler});

  manual_seed(static_cast<std::uint64_t>(options.seed));  // all ranks build the same model
  nn::Sequential model = example::make_mlp(digits.train_x.size(1), {256, 256}, digits.classes, 0);
  parallel::Pipeline pipeline(model, mesh["pipeline"],
                              {.microbatches = grid.microbatches, .average_over = &mesh["data"]});
  optim::Adam adam(pipeline.parameters(), {.lr = options.lr});
  const bool leads = parallel::get_rank() == 0;
  example::run_epochs(options, loader, leads && !options.quiet, [&](const Tensor& x, const Tensor& y) {
    adam.zero_grad();
    const Tensor loss = pipeline.step(x, y, [](const Tensor& out, const Tensor& t) { return cross_entropy(out, t); });
    adam.step();
    return loss;
  });
  const parallel::PipelineReport report = pipeline.report();
  pipeline.gather_parameters();
  if (leads) {
    const Tensor outputs = example::predict(model, scaler.apply(digits.test_x));
    fmt::print("{} pipelines of {} stages; the first:\n{}", grid.data, grid.pipeline, to_string(report));
    fmt::print("test accuracy: {:.2f} %\n", 100 * example::share_right(outputs, digits.test_y));
  }
}

int hybrid(int argc, char** argv) {
  example::PlainOptions options{.epochs = 5, .batch_size = 128, .lr = 2e-3};
  Grid grid;
  CLI::App app("Learns handwritten digits with several pipelines, each on a part of the data.", "hybrid");
  example::add_learning_options(app, options, example::kDigitsFolder, "Learning rate of Adam");
  example::add_whole<int>(app, "--pipelines", "Pipelines side by side", grid.data, 1, 64);
  example::add_whole<int>(app, "--stages", "Stages of each pipeline", grid.pipeline, 1, 5);
  example::add_whole<std::int64_t>(app, "--microbatches", "Parts of a pipeline's batch", grid.microbatches, 1, 1024);
  app.footer(
      "Examples:\n"
      "  hybrid                                  2 pipelines of 2 stages, threads of this\n"
      "                                          process\n"
      "  tandem run -n 4 hybrid                  the same as processes\n"
      "  hybrid --pipelines 3 --stages 1         data parallelism alone");
  if (const auto code = example::parse(app, options, argc, argv)) {
    return *code;
  }
  const example::Digits digits = example::load_digits(options.data);
  if (parallel::launcher_variable() != nullptr) {
    const parallel::ProcessGroupGuard guard;
    train(options, grid, digits);
  } else {
    parallel::spawn(grid.data * grid.pipeline, [&](int) { train(options, grid, digits); });
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return example::run_main(argc, argv, hybrid); }

#include "training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <tandem/autograd/ops.h>
#include <tandem/checkpoint/safetensors.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/step_times.h>
#include <tandem/core/thread_pool.h>
#include <tandem/data/loader.h>
#include <tandem/graph/capture.h>
#include <tandem/nn/stateless.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/lr_scheduler.h>
#include <tandem/optim/sgd.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/diagnose.h>
#include <tandem/parallel/distributed/join.h>
#include <tandem/parallel/write_trace.h>
#include <tandem/telemetry/progress.h>
#include <tandem/telemetry/report.h>
#include <tandem/telemetry/trace.h>
#include <tandem/tensor/factories.h>

namespace example {

using namespace tandem;

nn::Sequential make_mlp(std::int64_t in, const std::vector<std::int64_t>& hidden, std::int64_t out, double dropout) {
  nn::Sequential model;
  for (const std::int64_t size : hidden) {
    model.push_back(nn::Linear(in, size));
    model.push_back(nn::ReLU());
    if (dropout > 0) {
      model.push_back(nn::Dropout(dropout));
    }
    in = size;
  }
  model.push_back(nn::Linear(in, out));
  return model;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& name, const std::vector<Tensor>& parameters,
                                                 double lr, double weight_decay) {
  if (name == "adam") {
    return std::make_unique<optim::Adam>(parameters, optim::AdamOptions{.lr = lr, .weight_decay = weight_decay});
  }
  if (name == "adamw") {
    return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = lr, .weight_decay = weight_decay});
  }
  return std::make_unique<optim::SGD>(parameters,
                                      optim::SGDOptions{.lr = lr, .momentum = 0.9, .weight_decay = weight_decay});
}

namespace {

bool all_finite(const Tensor& tensor) {
  const auto values = tensor.span<float>();
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

// Rows of the rank with the most rows.
std::int64_t rows_of_a_rank(const data::TensorDataset& train, const Rank& rank) {
  return (train.size() + rank.size - 1) / rank.size;
}

// Whether ranks may have unequal numbers of samples. Otherwise some samples come twice in an epoch.
bool joins(const CommonOptions& options) { return options.parallel == "ddp" && options.shard != "parameters"; }

// Has the run note the step, for the next process to look at, and leaves it to the caller to explain.
void note_nonfinite(checkpoint::Run& run, const Tensor& loss) {
  try {
    run.step(loss);
  } catch (const ValueError&) {
  }
}

std::string divergence_cure(const CommonOptions& options, double weight_decay) {
  if (weight_decay > 1 && options.lr * weight_decay > 1) {  // each step takes more from a weight than is there
    return fmt::format(
        "The weight decay of {:g} is too strong for a learning rate of {}: keep their product well below 1",
        weight_decay, options.lr);
  }
  return fmt::format("A smaller --lr ({} now) is the usual cure; check the data for extreme values too{}", options.lr,
                     options.precision == "f16" ? ", since f16 ends at 65504 (--precision bf16 does not)" : "");
}

}  // namespace

Trainer::Trainer(const CommonOptions& options, const Recipe& recipe, const Rank& rank, nn::Sequential& model,
                 const data::TensorDataset& train, LossFunction loss_fn, std::string unit)
    : options_(options),
      rank_(rank),
      model_(model),
      // A single rank is a group of its own and sees the samples in the same order as a plain run.
      sampler_(std::make_shared<parallel::DistributedSampler>(
          train,
          parallel::DistributedSamplerOptions{
              .num_replicas = rank.size, .rank = rank.rank, .seed = options.seed, .exact = joins(options)})),
      train_(train),
      loss_fn_(loss_fn),
      unit_(std::move(unit)),
      cosine_(recipe.cosine),
      precision_(options.precision),
      optimizer_(make_optimizer(options.optimizer, model.parameters(), options.lr, recipe.weight_decay)) {
  const std::int64_t rows = rows_of_a_rank(train, rank);
  check<ConfigError>(options.batch_size <= rows,
                     "--batch-size {} is larger than the training part ({} samples{}); choose at most that",
                     options.batch_size, rows, rank.size > 1 ? " for each rank" : "");
  if (options.parallel == "dp") {
    replicas_.emplace(model, std::vector<Device>(options.devices.begin(), options.devices.end()));
  } else if (options.parallel == "ddp") {
    const auto shard = options.shard == "optimizer"    ? parallel::Shard::optimizer
                       : options.shard == "gradients"  ? parallel::Shard::gradients
                       : options.shard == "parameters" ? parallel::Shard::parameters
                                                       : parallel::Shard::none;
    together_.emplace(model, parallel::DistributedOptions{.shard = shard});
  }
}

Tensor Trainer::loss(const Tensor& x, const Tensor& y) {
  const AutocastScope autocast = precision_.autocast();
  if (replicas_) {
    return replicas_->loss(loss_fn_, x, y);
  }
  return loss_fn_(together_ ? (*together_)(x) : model_(x), y);
}

// The output for every row of x, computed in batches in evaluation mode, without recording.
Tensor Trainer::predict(const Tensor& x) {
  constexpr std::int64_t kRows = 1024;
  const NoGradGuard no_grad;
  const AutocastScope autocast = precision_.autocast();
  // Ranks may have unequal numbers of rows to test.
  const auto whole = together_ ? std::optional(together_->whole_parameters()) : std::nullopt;
  const bool was_training = model_.is_training();
  model_.eval();
  std::vector<Tensor> parts;
  for (std::int64_t row = 0; row < x.size(0); row += kRows) {
    const Tensor rows = x.slice(0, row, row + kRows).to(rank_.device);
    parts.push_back((replicas_ ? (*replicas_)(rows) : model_(rows)).to("cpu").to(DType::f32));
  }
  model_.train(was_training);
  return cat(parts);
}

std::vector<double> Trainer::sum_over_ranks(const std::vector<double>& sums) const {
  if (!together_) {
    return sums;
  }
  const Tensor joined = from_data(sums);
  parallel::default_group().all_reduce(joined);
  return joined.to_vector<double>();
}

std::unique_ptr<checkpoint::Run> open_run(const CommonOptions& options, const std::string& program) {
  return std::make_unique<checkpoint::Run>(
      options.resume.empty() ? options.out : options.resume,
      checkpoint::RunOptions{.every = options.checkpoint_every, .resume = !options.resume.empty(), .program = program});
}

double Trainer::run(checkpoint::Run& run, const data::TensorDataset& test, const Score& score) {
  using Clock = std::chrono::steady_clock;
  const bool narrates = rank_.leads() && !options_.quiet;
  if (together_ && narrates) {
    narrate(fmt::format("{} rank{} with {} {} each in a step: the effective batch is {}", rank_.size,
                        rank_.size == 1 ? "" : "s", options_.batch_size, unit_, rank_.size * options_.batch_size));
  }
  check<ConfigError>(test.size() >= rank_.size, "{} {} to test with are too few for {} ranks; start fewer", test.size(),
                     unit_, rank_.size);
  data::DataLoader loader(train_, {.batch_size = options_.batch_size, .sampler = sampler_, .device = rank_.device});
  const parallel::DistributedSampler test_rows(
      test, {.num_replicas = rank_.size, .rank = rank_.rank, .shuffle = false, .exact = true});
  const data::TensorDataset my_test = test.subset(from_data(test_rows.indices()));
  telemetry::Progress progress({.total = train_.size(), .unit = unit_, .enabled = narrates});
  const std::int64_t steps = (rows_of_a_rank(train_, rank_) + options_.batch_size - 1) / options_.batch_size;
  optim::CosineAnnealingLR schedule(*optimizer_, {.T_max = steps * options_.epochs});
  const auto advance_schedule = [&] {
    if (cosine_) {
      schedule.step();
    }
  };
  const auto step = [&](const Tensor& x, const Tensor& y) {
    optimizer_->zero_grad();
    Tensor value = loss(x, y);
    precision_.backward(value);
    precision_.step(*optimizer_);
    return value;
  };
  auto captured_step = graph::capture(step);

  double loss_sum = 0;  // of this epoch
  std::int64_t seen = 0;
  std::int64_t batch = 0;
  double seconds = 0;
  std::int64_t most_parameters = 0;  // bytes at once on this rank, in training
  run.track(model_, *optimizer_, schedule, loader);
  precision_.track(run);
  run.track("loss_sum", loss_sum);
  run.track("seen", seen);
  run.track("batch", batch);
  run.track("seconds", seconds);
  run.track("history_loss", history_.loss);
  run.track("history_score", history_.score);
  run.track("history_seconds", history_.seconds);
  if (run.is_resumed() && narrates) {
    narrate(run.epoch() < options_.epochs ? fmt::format("going on after step {}, in epoch {} of {}", run.steps(),
                                                        run.epoch() + 1, options_.epochs)
                                          : fmt::format("all {} epochs are done; --epochs has it go on", run.epoch()));
  }
  for (const std::int64_t finished : run.epochs(options_.epochs)) {
    const std::int64_t epoch = finished + 1;
    progress.start_epoch(epoch, options_.epochs);
    progress.advance(std::min(rank_.size * seen, train_.size()));
    auto start = Clock::now();
    const auto after_step = [&](auto&&... loss) {
      const Clock::time_point now = Clock::now();
      seconds += std::chrono::duration<double>(now - std::exchange(start, now)).count();
      precision_.note_step();
      run.step(loss...);
    };
    std::optional<StepTimes> times;
    std::optional<telemetry::Trace> trace;
    if (options_.report && epoch == options_.epochs) {
      times.emplace();
      trace.emplace();
    }
    std::optional<parallel::Join> join;  // some ranks have one row more than others
    if (joins(options_)) {
      join.emplace(*together_);
    }
    for (const auto& [x, y] : loader) {
      ++batch;
      const Tensor result = options_.captured ? captured_step(x, y) : step(x, y);
      const double value = result.item();
      if (!std::isfinite(value)) {
        note_nonfinite(run, result);
        fail<ValueError>("the loss is {} in epoch {}, batch {} of {}: training stopped. {}",
                         std::isnan(value) ? "NaN" : "infinite", epoch, batch, loader.size(),
                         divergence_cure(options_, optimizer_->param_groups()[0].weight_decay()));
      }
      advance_schedule();
      const std::int64_t rows = x.size(0);
      loss_sum += value * static_cast<double>(rows);
      progress.set("loss", loss_sum / static_cast<double>(seen + rows));
      // The others are as far. A run that had other ranks before has counted only those of its rank 0.
      progress.advance(std::max(std::min(rank_.size * rows, train_.size() - rank_.size * seen), std::int64_t{0}));
      seen += rows;
      after_step(result);
    }
    if (join) {
      join->finish([&] {
        precision_.step(*optimizer_);
        advance_schedule();
        after_step();
      });
    }
    if (times) {
      diagnosis_ = together_ ? parallel::diagnose(*times, parallel::default_group()) : parallel::diagnose(*times);
      const telemetry::StepProfile profile =
          together_ ? parallel::profile(*times, model_.parameters(), parallel::default_group())
                    : parallel::profile(*times, model_.parameters());
      const std::string path = run.folder() != nullptr ? run.folder()->file("trace.json") : "";
      together_ ? parallel::write_trace(*trace, parallel::default_group(), path) : trace->write(path);
      if (run.folder() != nullptr) {
        run.folder()->write_file("diagnosis.txt", diagnosis_);
        run.folder()->write_file("steps.json", telemetry::to_json(profile.to_fields(), 2) + "\n");
      }
    }
    if (together_ && most_parameters == 0) {
      most_parameters = together_->peak_parameter_bytes();
    }
    const Tensor output = predict(my_test.x());
    if (!all_finite(output)) {
      fail<ValueError>(
          "the model's output for the test data is not finite after epoch {}, batch {} of {}: training stopped. {}",
          epoch, batch, loader.size(), divergence_cure(options_, optimizer_->param_groups()[0].weight_decay()));
    }
    const std::vector<double> sums = sum_over_ranks(
        {loss_sum, static_cast<double>(seen), score.sum(output, my_test.y()), static_cast<double>(my_test.size())});
    history_.loss.push_back(sums[0] / sums[1]);
    history_.score.push_back(score.finish(sums[2] / sums[3]));
    history_.seconds.push_back(seconds);
    progress.set("loss", history_.loss.back());
    progress.set(score.name, history_.score.back());
    precision_.show(progress);
    telemetry::Fields fields{{"epoch", epoch},
                             {"train_loss", history_.loss.back()},
                             {"train_seconds", seconds},
                             {"lr", optimizer_->learning_rate()},
                             {score.name, history_.score.back()}};
    std::ranges::move(precision_.fields(), std::back_inserter(fields));
    run.log(fields);
    progress.end_epoch();
    loss_sum = seconds = 0;
    seen = batch = 0;
  }
  if (options_.shard != "none" && narrates) {
    const auto mb = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
    narrate(
        fmt::format("optimizer state: {:.1f} MB on this rank, of {}; gradients: {:.1f} MB; parameters: {:.1f} MB, at "
                    "most {:.1f} MB",
                    mb(optimizer_->state_bytes()), rank_.size, mb(together_->gradient_bytes()),
                    mb(together_->parameter_bytes()), mb(most_parameters)));
  }
  if (const std::string summary = precision_.summary(); !summary.empty() && narrates) {
    narrate(summary);
  }
  const auto whole = together_ ? std::optional(together_->whole_parameters()) : std::nullopt;
  if (run.folder() != nullptr) {
    save(model_, run.folder()->file("model.safetensors"));
    if (options_.report) {
      run.folder()->write_file("report.html", telemetry::html_report(run.folder()->path()));
      if (narrates) {
        narrate(fmt::format("where the time went: {}; open {} in https://ui.perfetto.dev for every span",
                            run.folder()->file("report.html"), run.folder()->file("trace.json")));
      }
    }
  }
  return std::accumulate(history_.seconds.begin(), history_.seconds.end(), 0.0);
}

telemetry::Fields common_fields(const std::string& program, const CommonOptions& options, const Recipe& recipe,
                                const Rank& rank) {
  return {{"program", program},
          {"data", options.data},
          {"epochs", options.epochs},
          {"batch_size", options.batch_size},
          {"lr", options.lr},
          {"schedule", recipe.cosine ? "cosine" : "constant"},
          {"optimizer", options.optimizer},
          {"weight_decay", recipe.weight_decay},
          {"dropout", recipe.dropout},
          {"hidden", fmt::format("{}", fmt::join(options.hidden, ","))},
          {"device", options.device},
          {"parallel", options.parallel},
          {"devices", fmt::format("{}", fmt::join(options.devices, ","))},
          {"ranks", static_cast<std::int64_t>(rank.size)},
          {"threads", static_cast<std::int64_t>(num_threads())},
          {"seed", static_cast<std::int64_t>(options.seed)},
          {"precision", options.precision},
          {"shard", options.shard},
          {"arguments", options.arguments}};
}

}  // namespace example

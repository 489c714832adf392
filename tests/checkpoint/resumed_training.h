#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tandem/checkpoint/stored_tensors.h>
#include <tandem/tandem.h>

// A small training with everything that has a state, in each way of training, to be interrupted and resumed.

namespace tandem::test {

enum class Way { eager, captured, scaled, replicas, ranks, ranks_in_join, ranks_with_shard, ranks_with_parts };

inline const char* to_string(Way way) {
  constexpr const char* kNames[] = {"Eager", "Captured",    "Scaled",         "Replicas",
                                    "Ranks", "RanksInJoin", "RanksWithShard", "RanksWithParts"};
  return kNames[static_cast<int>(way)];
}

/// Thrown by train() in the place of a crash.
struct Stopped : std::runtime_error {
  Stopped() : std::runtime_error("stopped") {}
};

struct TrainingPlan {
  Way way = Way::eager;
  std::int64_t steps = 0;              // in all, about: whole epochs
  std::int64_t stop_at = -1;           // crashes after this step
  std::chrono::microseconds pause{0};  // in each step, so that a kill finds it somewhere
  bool logs_steps = false;             // with the hash of all parameters after each; in addition to epochs
};

/// 101 samples of 6 numbers, of 3 classes.
inline data::TensorDataset samples() {
  Generator generator(5);
  const GeneratorScope scope(generator);
  const Tensor x = randn({101, 6});
  return {x, (x.slice(1, 0, 3).argmax(1))};
}

struct Net : nn::Module<Net> {
  nn::Linear fc1 = child("fc1", nn::Linear(6, 10));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(10));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.3));
  nn::Linear fc2 = child("fc2", nn::Linear(10, 3));
  Tensor forward(const Tensor& x) const { return fc2(dropout(relu(norm(fc1(x))))); }
};

inline std::string hash_of_all(const std::vector<Tensor>& tensors) {
  std::uint64_t hash = 0;
  for (const Tensor& tensor : tensors) {
    hash = 31 * hash + checkpoint::hash_of(tensor);
  }
  return std::to_string(hash);
}

/// Trains in the folder, from the newest checkpoint there on. On each rank, in the ways with ranks.
inline void train_here(const std::string& folder, const TrainingPlan& plan, const checkpoint::RunOptions& options) {
  const data::TensorDataset data = samples();
  Net model;
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  optim::CosineAnnealingLR schedule(adam, {.T_max = 2 * plan.steps});
  optim::GradScaler scaler({.init_scale = 8, .growth_interval = 20, .enabled = plan.way == Way::scaled});
  optim::EMA ema(model.parameters(), {.decay = 0.9});
  const bool has_ranks = plan.way >= Way::ranks;
  const bool joins = plan.way == Way::ranks_in_join;
  data::DataLoader loader(
      data, {.batch_size = has_ranks ? 4 : 8,
             .shuffle = !has_ranks,
             .sampler = has_ranks ? std::make_shared<parallel::DistributedSampler>(
                                        data, parallel::DistributedSamplerOptions{.seed = 3, .exact = joins})
                                  : nullptr,
             .num_workers = plan.way == Way::eager ? 1 : 0});
  std::optional<parallel::DataParallel<Net>> replicas;
  std::optional<parallel::DistributedDataParallel<Net>> ddp;
  if (plan.way == Way::replicas) {
    replicas.emplace(model, std::vector<Device>{"cpu:0", "cpu:1"});
  } else if (has_ranks) {
    const auto shard = plan.way == Way::ranks_with_shard   ? parallel::Shard::optimizer
                       : plan.way == Way::ranks_with_parts ? parallel::Shard::parameters
                                                           : parallel::Shard::none;
    ddp.emplace(model, parallel::DistributedOptions{.bucket_cap_mb = 1e-4, .shard = shard});
  }
  const auto whole = [&] { return ddp ? std::optional(ddp->whole_parameters()) : std::nullopt; };
  const auto update_averages = [&] {
    const auto parameters = whole();
    ema.update();
  };
  const auto step = [&](const Tensor& x, const Tensor& y) {
    adam.zero_grad();
    Tensor loss =
        replicas ? replicas->loss([](const Tensor& out, const Tensor& t) { return nn::cross_entropy(out, t); }, x, y)
                 : nn::cross_entropy(ddp ? (*ddp)(x) : model(x), y);
    scaler.scale(loss).backward();
    scaler.step(adam);
    scaler.update();
    schedule.step();
    update_averages();
    return loss;
  };
  auto captured = graph::capture(step);

  checkpoint::Run run(folder, options);
  double loss_sum = 0;
  std::int64_t seen = 0;
  std::vector<double> history;
  run.track(model, adam, schedule, scaler, ema, loader);
  run.track("loss_sum", loss_sum);
  run.track("seen", seen);
  run.track("history", history);
  const auto after_step = [&](const std::optional<Tensor>& loss) {
    if (plan.logs_steps) {
      const auto parameters = whole();
      run.log({{"step", run.steps() + 1}, {"loss_sum", loss_sum}, {"hash", hash_of_all(model.parameters())}});
    }
    std::this_thread::sleep_for(plan.pause);
    loss ? run.step(*loss) : run.step();
    if (run.steps() == plan.stop_at) {
      throw Stopped();
    }
  };
  const std::int64_t in_epoch = loader.size();
  for (const std::int64_t epoch : run.epochs((plan.steps + in_epoch - 1) / in_epoch)) {
    std::optional<parallel::Join> join;
    if (joins) {
      join.emplace(*ddp);
    }
    for (const auto& [x, y] : loader) {
      const Tensor loss = plan.way == Way::captured ? captured(x, y) : step(x, y);
      loss_sum += loss.item();
      ++seen;
      after_step(loss);
    }
    if (join) {
      join->finish([&] {
        adam.step();
        schedule.step();
        update_averages();
        after_step(std::nullopt);
      });
    }
    history.push_back(loss_sum / static_cast<double>(seen));
    run.log({{"epoch", epoch}, {"loss", history.back()}});
  }
}

/// train_here(), on two threads in the ways with ranks.
inline void train(const std::string& folder, const TrainingPlan& plan, const checkpoint::RunOptions& options,
                  int ranks = 2) {
  if (plan.way >= Way::ranks) {
    manual_seed(7);
    parallel::spawn(ranks, [&](int) { train_here(folder, plan, options); });
  } else {
    Generator generator(7);
    const GeneratorScope scope(generator);
    train_here(folder, plan, options);
  }
}

}  // namespace tandem::test

#include "brakes/cases.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "brakes/training.h"

namespace bench::brakes {

using namespace tandem;
using telemetry::Brake;

namespace {

void sleep_us(double us) { std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(us)); }

// Host work on one thread that the optimiser of the compiler keeps.
double compute_for(double us) {
  const auto begin = std::chrono::steady_clock::now();
  double sum = 0;
  while (std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() < us) {
    for (int i = 0; i < 100; ++i) {
      sum += std::sin(sum + i);
    }
  }
  return sum;
}

constexpr Wire kGigabit{.latency_us = 100, .mbit_s = 1000};

// Layers of equal size, whose gradients can leave one after another.
std::vector<std::int64_t> deep(int layers, std::int64_t size) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(layers) + 1, size);
  sizes.back() = 10;
  return sizes;
}

std::vector<Device> cpus(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    devices.emplace_back(DeviceType::cpu, i);
  }
  return devices;
}

struct PipelineSetup {
  std::vector<std::size_t> split;
  std::int64_t microbatches;
};

Seen train_pipeline(const PipelineSetup& setup) {
  manual_seed(1);
  nn::Sequential model = mlp({512, 512, 512, 512, 512, 512, 10});
  parallel::Pipeline pipeline(model, cpus(static_cast<int>(setup.split.size())),
                              {.microbatches = setup.microbatches, .split = setup.split});
  optim::SGD sgd(pipeline.parameters(), {.lr = 1e-4});
  const std::int64_t rows = 512;
  const Tensor x = randn({rows, 512});
  const Tensor y = randint(0, 10, {rows});
  return train_alone(rows, [&] {
    sgd.zero_grad();
    pipeline.step(x, y, [](const Tensor& out, const Tensor& t) { return cross_entropy(out, t); });
    sgd.step();
  });
}

// Outputs that are much larger than inputs, and a loss on them: on the first device, or where the outputs are.
Seen train_replicas(const std::vector<std::int64_t>& sizes, std::int64_t rows, bool gathers) {
  manual_seed(1);
  nn::Sequential model = mlp(sizes);
  parallel::DataParallel dp(model, cpus(2));
  optim::SGD sgd(model.parameters(), {.lr = 1e-4});
  const Tensor x = randn({rows, sizes.front()});
  const auto loss = [](const Tensor& out, const Tensor&) { return (out * out).mean(); };
  return train_alone(rows, [&] {
    sgd.zero_grad();
    (gathers ? loss(dp(x), x) : dp.loss(loss, x, x)).backward();
    sgd.step();
  });
}

Seen train_threads(int threads) {
  const int before = num_threads();
  set_num_threads(threads);
  manual_seed(1);
  nn::Sequential model = mlp({784, 512, 512, 10});
  optim::SGD sgd(model.parameters(), {.lr = 1e-4});
  const Tensor x = randn({256, 784});
  const Tensor y = randint(0, 10, {256});
  const Seen seen = train_alone(256, [&] {
    sgd.zero_grad();
    cross_entropy(model(x), y).backward();
    sgd.step();
  });
  set_num_threads(before);
  return seen;
}

}  // namespace

std::vector<Case> braked_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, Brake brake, std::function<Seen(bool)> train) {
    cases.push_back({name, brake, std::move(train)});
  };
  add("slow loader", Brake::loader,
      [](bool braked) { return train_ranks({.load_us = 100, .workers = braked ? 0 : 4}); });
  add("tiny batch", Brake::tiny_batch, [](bool braked) {
    return train_ranks({.rows = braked ? 4 : 16, .wire = kGigabit, .ddp = {.bucket_cap_mb = 25}});
  });
  add("one slow rank", Brake::slow_rank, [](bool braked) {
    return train_ranks({.before = [=](int rank, int) { braked&& rank == 1 ? sleep_us(4000) : void(); }});
  });
  add("ranks slow in turn", Brake::ranks_in_turn, [](bool braked) {
    return train_ranks({.before = [=](int rank, int step) { braked&& rank == step % 2 ? sleep_us(4000) : void(); }});
  });
  cases.push_back({"all ranks on one core", Brake::bound_cores,
                   [](bool) { return train_rank({.rows = 256}, parallel::default_group()); }, true});
  add("everything on device 0", Brake::data_parallel,
      [](bool braked) { return train_replicas({64, 4096}, 512, braked); });
  add("limited link", Brake::link, [](bool braked) {
    return train_ranks(
        {.wire = {.latency_us = 100, .mbit_s = 400}, .ddp = {.bucket_cap_mb = 1}, .compresses = !braked});
  });
  add("single-threaded work after a step", Brake::loop, [](bool braked) {
    return train_ranks({.after = [=](nn::Sequential&, int) { braked ? void(compute_for(3000)) : void(); }});
  });
  add("buckets too small", Brake::small_buckets, [](bool braked) {
    return train_ranks({.sizes = deep(12, 128),
                        .wire = {.latency_us = 500, .mbit_s = 10000},
                        .ddp = {.bucket_cap_mb = braked ? 0 : 25}});
  });
  add("buckets too large", Brake::large_buckets, [](bool braked) {
    return train_ranks({.sizes = deep(10, 512),
                        .rows = 256,
                        .wire = {.latency_us = 100, .mbit_s = 5000},
                        .ddp = {.bucket_cap_mb = braked ? 1000 : 1}});
  });
  add("an unused core", Brake::idle_cores, [](bool braked) { return train_threads(braked ? 1 : 2); });
  add("unequal stages", Brake::unequal_stages, [](bool braked) {
    return train_pipeline(
        {.split = braked ? std::vector<std::size_t>{2, 9} : std::vector<std::size_t>{5, 6}, .microbatches = 16});
  });
  add("pipeline's bubble", Brake::bubble,
      [](bool braked) { return train_pipeline({.split = {5, 6}, .microbatches = braked ? 2 : 8}); });
  add("exposed gather of shards", Brake::unshard, [](bool braked) {
    const auto shard = braked ? parallel::Shard::parameters : parallel::Shard::gradients;
    return train_ranks({.sizes = deep(12, 256),
                        .rows = 512,
                        .wire = {.latency_us = 100, .mbit_s = 2000},
                        .ddp = {.bucket_cap_mb = 0.25, .shard = shard},
                        .uses_adam = false});
  });
  add("host reads in a step", Brake::reads, [](bool braked) {
    return train_ranks({.after = [=](nn::Sequential& model, int) {
      for (int i = 0; i < 4 && braked; ++i) {
        for (const Tensor& parameter : model.parameters()) {
          parameter.to_vector<float>();
        }
      }
    }});
  });
  add("allocation in each step", Brake::allocations, [](bool braked) {
    return train_ranks({.sizes = {16, 8192, 10}, .rows = 4096, .after = [=](nn::Sequential&, int) {
                          braked ? empty_cpu_cache() : void();
                        }});
  });
  add("an update made by all", Brake::optimizer_by_all, [](bool braked) {
    return train_ranks({.sizes = {784, 2048, 2048, 10},
                        .rows = 20,
                        .ddp = {.shard = braked ? parallel::Shard::none : parallel::Shard::optimizer}});
  });
  return cases;
}

std::vector<HealthyCase> healthy_cases() {
  std::vector<HealthyCase> cases;
  const auto add = [&](std::string name, std::function<Seen()> train) {
    cases.push_back({std::move(name), std::move(train)});
  };
  for (const std::int64_t rows : {128, 256, 512, 1024}) {
    for (const bool captured : {false, true}) {
      add(fmt::format("2 ranks, 784-512-512-10, {} rows{}", rows, captured ? ", captured" : ""),
          [=] { return train_ranks({.rows = rows, .is_captured = captured, .uses_adam = false}); });
    }
  }
  for (const parallel::Shard shard : {parallel::Shard::optimizer, parallel::Shard::gradients}) {
    add(fmt::format("2 ranks, shard {}", static_cast<int>(shard)),
        [=] { return train_ranks({.rows = 256, .ddp = {.shard = shard}}); });
  }
  add("2 ranks, deep", [] { return train_ranks({.sizes = deep(10, 256), .rows = 512, .uses_adam = false}); });
  add("2 ranks, wide", [] { return train_ranks({.sizes = {784, 2048, 10}, .rows = 512, .uses_adam = false}); });
  add("2 ranks, a fast wire", [] {
    return train_ranks(
        {.rows = 512, .wire = {.latency_us = 50, .mbit_s = 10000}, .ddp = {.bucket_cap_mb = 1}, .uses_adam = false});
  });
  add("2 ranks, a loader with workers",
      [] { return train_ranks({.rows = 256, .load_us = 0.1, .workers = 2, .uses_adam = false}); });
  add("DataParallel, gathered little", [] { return train_replicas({784, 512, 512, 10}, 512, true); });
  add("pipeline, 16 micro-batches", [] { return train_pipeline({.split = {5, 6}, .microbatches = 16}); });
  add("one rank, 2 threads", [] { return train_threads(2); });
  add("one rank of one", [] { return train_ranks({.ranks = 1, .rows = 256, .uses_adam = false}); });
  add("2 ranks, the loss read each step", [] {
    return train_ranks({.rows = 256,
                        .after = [](nn::Sequential& model, int) { model.parameters().back().sum().item(); },
                        .uses_adam = false});
  });
  add("2 ranks, hidden 64, 2048 rows",
      [] { return train_ranks({.sizes = {256, 64, 64, 10}, .rows = 2048, .uses_adam = false}); });
  return cases;
}

}  // namespace bench::brakes

#include "brakes/training.h"

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <tandem/parallel/comm/threads/local_backend.h>
#include <tandem/parallel/step_exchange.h>

namespace bench::brakes {

using namespace tandem;
using Clock = std::chrono::steady_clock;

namespace {

constexpr double kSeconds = 1.5;
constexpr int kWarmUp = 5;

// Samples that take their time.
struct SlowSamples final : data::Dataset {
  SlowSamples(std::int64_t features, double us) : x(randn({features})), load_us(us) {}
  std::int64_t size() const override { return 1 << 20; }
  data::Example get(std::int64_t) const override {
    if (load_us >= 1) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(load_us));
    }
    return {.x = x, .y = zeros({}, {.dtype = DType::i64})};
  }
  Tensor x;
  double load_us;
};

Seen seen_of(const telemetry::Ranks& ranks, double rows) {
  return {.first = telemetry::causes_of(ranks).front(),
          .verdict = telemetry::verdict(ranks),
          .diagnosis = telemetry::diagnosis(ranks),
          .rate = 1e6 * rows * static_cast<double>(ranks.count()) / ranks.mean().step_us};
}

// Ranks agree on when to end by the first one's clock, now and then.
class Ending {
 public:
  explicit Ending(parallel::ProcessGroup& group) : group_(group) {}
  bool is_due(int step) {
    if (step == kWarmUp) {
      begin_ = Clock::now();
    }
    if (step < kWarmUp || step % 8 != 0) {
      return false;
    }
    const Tensor over = full({}, std::chrono::duration<double>(Clock::now() - begin_).count());
    group_.broadcast(over, 0);
    return over.item() > kSeconds;
  }

 private:
  parallel::ProcessGroup& group_;
  Clock::time_point begin_;
};

}  // namespace

nn::Sequential mlp(const std::vector<std::int64_t>& sizes) {
  nn::Sequential model;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    if (i > 0) {
      model.push_back(nn::ReLU());
    }
    model.push_back(nn::Linear(sizes[i], sizes[i + 1]));
  }
  return model;
}

Seen train_rank(const Setup& setup, parallel::ProcessGroup& group) {
  manual_seed(1);
  nn::Sequential model = mlp(setup.sizes);
  parallel::DistributedOptions options = setup.ddp;
  options.process_group = &group;
  parallel::DistributedDataParallel ddp(model, options);
  if (setup.compresses) {
    ddp.register_comm_hook(parallel::bf16_compress_hook());
  }
  std::unique_ptr<optim::Optimizer> optimizer;
  if (setup.uses_adam) {
    optimizer = std::make_unique<optim::Adam>(model.parameters(), optim::AdamOptions{.lr = 1e-4});
  } else {
    optimizer = std::make_unique<optim::SGD>(model.parameters(), optim::SGDOptions{.lr = 1e-4});
  }
  const Tensor x = randn({setup.rows, setup.sizes.front()});
  const Tensor y = randint(0, setup.sizes.back(), {setup.rows});
  const SlowSamples samples(setup.sizes.front(), setup.load_us);
  data::DataLoader loader(samples, {.batch_size = setup.rows, .num_workers = setup.workers});
  auto batches = loader.begin();
  const auto step_on = [&](const Tensor& inputs, const Tensor& targets) {
    optimizer->zero_grad();
    Tensor loss = cross_entropy(ddp(inputs), targets);
    loss.backward();
    optimizer->step();
    return loss;
  };
  auto captured = graph::capture(step_on);
  std::optional<StepTimes> times;
  Ending ending(group);
  for (int step = 0;; ++step) {
    if (ending.is_due(step)) {
      break;
    }
    if (step == kWarmUp) {
      times.emplace();
    }
    if (setup.before) {
      setup.before(group.rank(), step);
    }
    if (setup.load_us > 0) {
      const auto& batch = *batches;
      step_on(batch.x, batch.y);
      ++batches;
    } else if (setup.is_captured) {
      captured(x, y);
    } else {
      step_on(x, y);
    }
    if (setup.after) {
      setup.after(model, group.rank());
    }
  }
  return seen_of(parallel::StepExchange(group).run(*times), static_cast<double>(setup.rows));
}

Seen train_ranks(const Setup& setup) {
  if (setup.wire.mbit_s == 0) {
    Seen seen;
    parallel::spawn(setup.ranks, [&](parallel::ProcessGroup& group) {
      const Seen mine = train_rank(setup, group);
      if (group.rank() == 0) {
        seen = mine;
      }
    });
    return seen;
  }
  Seen seen;
  const auto world = std::make_shared<parallel::LocalWorld>(setup.ranks);
  std::vector<int> members;
  for (int r = 0; r < setup.ranks; ++r) {
    members.push_back(r);
  }
  const auto local = std::make_shared<parallel::LocalGroup>(world, members);
  std::vector<std::thread> threads;
  for (int r = 0; r < setup.ranks; ++r) {
    threads.emplace_back([&, r] {
      parallel::ProcessGroup group(
          std::make_unique<WireBackend>(std::make_unique<parallel::LocalBackend>(local, r), setup.wire));
      const parallel::RankContext context{.group = &group};
      core::ThreadState state = core::thread_state();
      state.rank = &context;
      state.device = Device(DeviceType::cpu, r);
      const core::ThreadStateScope as_rank(state);
      const Seen mine = train_rank(setup, group);
      if (r == 0) {
        seen = mine;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return seen;
}

Seen train_alone(std::int64_t rows, const std::function<void()>& step) {
  for (int i = 0; i < kWarmUp; ++i) {
    step();
  }
  const StepTimes times;
  const Clock::time_point begin = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - begin).count() < kSeconds) {
    step();
  }
  return seen_of(telemetry::Ranks({telemetry::RankSteps::of(times)}), static_cast<double>(rows));
}

}  // namespace bench::brakes

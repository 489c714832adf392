#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"

// Pairs of schemes on four ranks, with random models, sizes and optimisers, train as one device does.

namespace tandem::test {
namespace {

using parallel::DeviceMesh;
using parallel::ProcessGroup;

// A random training, the same on all ranks.
struct Problem {
  explicit Problem(std::uint64_t number) : seed(number) {
    Generator generator(number);
    const GeneratorScope draws(generator);
    const auto draw = [](std::int64_t most) { return 1 + static_cast<std::int64_t>(randint(0, most, {1}).item()); };
    in = draw(9);
    hidden = 2 * draw(6);
    middle = draw(8);
    out = draw(5);
    rows = 4 * draw(6);
    microbatches = draw(5);
    is_adam = draw(2) == 1;
    is_clipped = draw(2) == 1;
    schedule = draw(2) == 1 ? parallel::Schedule::gpipe : parallel::Schedule::one_f_one_b;
    steps = number % kLongOf == 0 ? kLongSteps : static_cast<int>(draw(5));
  }

  // Every tenth case makes as many steps as the promise of 1e-12 covers: 17 of a pair's 170, 102 in all.
  static constexpr std::uint64_t kLongOf = 10;
  static constexpr int kLongSteps = 50;

  std::uint64_t seed;
  std::int64_t in, hidden, middle, out, rows, microbatches;
  bool is_adam, is_clipped;
  parallel::Schedule schedule;
  int steps;

  nn::Linear layer(int i) const {
    Generator generator(seed + 1000 * static_cast<std::uint64_t>(i + 1));
    const GeneratorScope draws(generator);
    const std::int64_t sizes[] = {in, hidden, middle, out};
    return nn::Linear(sizes[i], sizes[i + 1], {.dtype = DType::f64});
  }
  nn::Sequential whole() const { return nn::Sequential(layer(0), nn::Tanh(), layer(1), nn::Tanh(), layer(2)); }
  nn::Sequential divided(ProcessGroup& group) const {
    return nn::Sequential(parallel::ColumnParallelLinear(layer(0), group), nn::Tanh(),
                          parallel::RowParallelLinear(layer(1), group), nn::Tanh(), layer(2));
  }

  std::unique_ptr<optim::Optimizer> optimizer(const std::vector<Tensor>& parameters) const {
    if (is_adam) {
      return std::make_unique<optim::Adam>(parameters, optim::AdamOptions{.lr = 0.01});
    }
    return std::make_unique<optim::SGD>(parameters, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  }

  // Part `part` of `parts` of the rows of a step.
  Batch batch(int step, int part = 0, int parts = 1) const {
    Generator generator(seed + 77 + static_cast<std::uint64_t>(step));
    const GeneratorScope draws(generator);
    const Tensor x = randn({rows, in}, {.dtype = DType::f64});
    const Tensor y = randn({rows, out}, {.dtype = DType::f64});
    return {x.narrow(0, rows / parts * part, rows / parts), y.narrow(0, rows / parts * part, rows / parts)};
  }
};

constexpr double kMaxNorm = 0.3;

Tensor loss_of(const Tensor& output, const Tensor& y) { return nn::mse_loss(output, y); }

// Runs the steps of a loop whose `step(batch)` computes the gradients of this rank's part of the rows. A pipeline clips
// them itself.
void train(const Problem& problem, const std::vector<Tensor>& parameters, int part, int parts,
           const std::function<void(const Batch&)>& step, parallel::Pipeline* pipeline = nullptr) {
  const std::unique_ptr<optim::Optimizer> optimizer = problem.optimizer(parameters);
  for (int i = 0; i < problem.steps; ++i) {
    optimizer->zero_grad();
    step(problem.batch(i, part, parts));
    if (problem.is_clipped) {
      pipeline != nullptr ? pipeline->clip_grad_norm_(kMaxNorm) : optim::clip_grad_norm_(parameters, kMaxNorm).item();
    }
    optimizer->step();
  }
}

using Values = std::vector<Tensor>;

// Each scheme returns the parameters of the whole model.
Values one_device(const Problem& problem) {
  nn::Sequential model = problem.whole();
  train(problem, model.parameters(), 0, 1, [&](const Batch& b) { loss_of(model(b.x), b.y).backward(); });
  return model.parameters();
}

Values joined(const nn::Sequential& model) {
  const nn::Linear up = model.get<parallel::ColumnParallelLinear>(0).whole();
  const nn::Linear down = model.get<parallel::RowParallelLinear>(2).whole();
  const auto& last = model.get<nn::Linear>(4);
  return {up.weight, up.bias, down.weight, down.bias, last.weight, last.bias};
}

template <parallel::Shard shard>
Values ddp_around_divided_layers(const Problem& problem, ProcessGroup& group) {
  const DeviceMesh mesh(group, {{"data", 2}, {"tensor", 2}});
  nn::Sequential model = problem.divided(mesh["tensor"]);
  parallel::DistributedDataParallel ddp(model, {.process_group = &mesh["data"], .shard = shard});
  train(problem, model.parameters(), mesh.rank("data"), 2, [&](const Batch& b) { loss_of(ddp(b.x), b.y).backward(); });
  return joined(model);
}

Values pipelines_side_by_side(const Problem& problem, ProcessGroup& group) {
  const DeviceMesh mesh(group, {{"data", 2}, {"pipeline", 2}});
  nn::Sequential model = problem.whole();
  parallel::Pipeline pipeline(
      model, mesh["pipeline"],
      {.microbatches = problem.microbatches, .schedule = problem.schedule, .average_over = &mesh["data"]});
  train(
      problem, pipeline.parameters(), mesh.rank("data"), 2, [&](const Batch& b) { pipeline.step(b.x, b.y, loss_of); },
      &pipeline);
  pipeline.gather_parameters();
  return model.parameters();
}

Values pipeline_of_divided_layers(const Problem& problem, ProcessGroup& group) {
  const DeviceMesh mesh(group, {{"pipeline", 2}, {"tensor", 2}});
  nn::Sequential model = problem.divided(mesh["tensor"]);
  parallel::Pipeline pipeline(model, mesh["pipeline"],
                              {.microbatches = problem.microbatches, .schedule = problem.schedule, .split = {3, 2}});
  train(problem, pipeline.parameters(), 0, 1, [&](const Batch& b) { pipeline.step(b.x, b.y, loss_of); }, &pipeline);
  pipeline.gather_parameters();
  return joined(model);
}

Values replicas_in_each_rank(const Problem& problem, ProcessGroup& group) {
  nn::Sequential model = problem.whole();
  model.to(Device("cpu:0"));
  parallel::DataParallel replicas(model, {"cpu:0", "cpu:1"});
  train(problem, model.parameters(), group.rank(), group.size(), [&](const Batch& b) {
    loss_of(replicas(b.x), b.y.to(Device("cpu:0"))).backward();
    parallel::all_reduce_gradients(model.parameters(), group);
  });
  return model.parameters();
}

Values pipeline_in_each_rank(const Problem& problem, ProcessGroup& group) {
  nn::Sequential model = problem.whole();
  parallel::Pipeline pipeline(model, cpus(2), {.microbatches = problem.microbatches, .schedule = problem.schedule});
  train(
      problem, model.parameters(), group.rank(), group.size(),
      [&](const Batch& b) {
        pipeline.step(b.x, b.y, loss_of);
        parallel::all_reduce_gradients(model.parameters(), group);
      },
      &pipeline);
  return model.parameters();
}

struct Pair {
  const char* name;
  Values (*train)(const Problem& problem, ProcessGroup& group);
};

constexpr Pair kPairs[] = {
    {"DDP around divided layers", ddp_around_divided_layers<parallel::Shard::none>},
    {"DDP with shard around divided layers", ddp_around_divided_layers<parallel::Shard::optimizer>},
    {"pipelines side by side", pipelines_side_by_side},
    {"pipeline of divided layers", pipeline_of_divided_layers},
    {"replicas in each rank", replicas_in_each_rank},
    {"pipeline in each rank", pipeline_in_each_rank},
};

// The number of cases of each pair; a thousand together.
int cases() {
  const char* wanted = std::getenv("TANDEM_SCHEME_CASES");
  return wanted == nullptr ? 170 : std::atoi(wanted);
}

TEST(SchemePairs, TrainAsOneDeviceDoes) {
  for (const Pair& pair : kPairs) {
    for (int i = 0; i < cases(); ++i) {
      const Problem problem(static_cast<std::uint64_t>(i));
      const Values expected = one_device(problem);
      as_ranks(4, [&](ProcessGroup& group) {
        const Values got = pair.train(problem, group);
        ASSERT_EQ(got.size(), expected.size());
        for (std::size_t p = 0; p < got.size(); ++p) {
          EXPECT_LT(difference(got[p], expected[p]), 1e-12) << pair.name << ", case " << i << ", " << problem.steps
                                                            << " steps, parameter " << p << " on rank " << group.rank();
        }
      });
      if (HasFailure()) {
        return;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::test

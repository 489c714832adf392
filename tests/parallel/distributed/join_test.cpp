#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::DistributedOptions;
using parallel::Join;
using parallel::ProcessGroup;

/// The number of rows of each batch, one list for each rank.
using Plan = std::vector<std::vector<std::int64_t>>;

const std::vector<Plan> kPlans = {
    {{4, 4, 4}, {4, 4, 2}},             // a shorter last batch
    {{4, 4, 4, 1}, {4, 4}},             // a rank ends early
    {{3}, {4, 4, 4}},                   // rank 0 ends early
    {{}, {4, 2}},                       // a rank without data
    {{4, 1}, {}},                       //
    {{5, 1, 2, 7}, {2, 2}, {1, 9, 1}},  // all sizes
    {{2}, {}, {3, 3, 3}, {1, 1}},       //
    {{}, {}},                           // nothing at all
    {{4, 3, 4}},                        // one rank
};

/// All rows of the data set: those of step s, rank by rank, after the rows of earlier steps.
class Rows {
 public:
  explicit Rows(const Plan& plan) : plan_(plan) {
    std::int64_t rows = 1;
    for (const auto& rank : plan) {
      rows = std::accumulate(rank.begin(), rank.end(), rows);
    }
    all_ = batch_of(rows);
  }
  std::size_t steps() const {
    std::size_t most = 0;
    for (const auto& rank : plan_) {
      most = std::max(most, rank.size());
    }
    return most;
  }
  Batch of(std::size_t step, std::size_t rank) const { return cut(first(step, rank), plan_[rank][step]); }
  /// The joined batch of all ranks.
  Batch joined(std::size_t step) const {
    const std::int64_t begin = first(step, 0);
    return cut(begin, first(step + 1, 0) - begin);
  }

 private:
  std::int64_t first(std::size_t step, std::size_t rank) const {
    std::int64_t rows = 0;
    for (std::size_t s = 0; s <= step; ++s) {
      for (std::size_t r = 0; r < plan_.size(); ++r) {
        rows += s < plan_[r].size() && (s < step || r < rank) ? plan_[r][s] : 0;
      }
    }
    return rows;
  }
  Batch cut(std::int64_t begin, std::int64_t rows) const {
    return {all_.x.narrow(0, begin, rows), all_.y.narrow(0, begin, rows)};
  }
  Plan plan_;
  Batch all_;
};

std::vector<std::vector<double>> values_of(const nn::ModuleRef& model) {
  std::vector<std::vector<double>> values;
  for (const Tensor& parameter : model.parameters()) {
    values.push_back(parameter.detach().to("cpu:0").to(DType::f64).to_vector<double>());
  }
  return values;
}

void expect_near(const std::vector<std::vector<double>>& got, const std::vector<std::vector<double>>& expected,
                 double limit = 1e-12) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t p = 0; p < got.size(); ++p) {
    double most = 0;
    for (std::size_t i = 0; i < got[p].size(); ++i) {
      most = std::max(most, std::abs(got[p][i] - expected[p][i]));
    }
    EXPECT_LE(most, limit);
  }
}

/// Trains two passes over the data on each rank, with one Join for each. Returns the state of each rank.
std::vector<std::vector<std::vector<double>>> trained_by_ranks(
    const Plan& plan, const DistributedOptions& options = {},
    const std::function<void(DistributedDataParallel<Mlp>&)>& prepare = {}) {
  std::vector<std::vector<std::vector<double>>> results(plan.size());
  as_ranks(static_cast<int>(plan.size()), [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const Rows rows(plan);
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, options);
    if (prepare) {
      prepare(ddp);
    }
    optim::Adam adam(model.parameters(), {.lr = 0.01});
    for (int epoch = 0; epoch < 2; ++epoch) {
      Join join(ddp);
      for (std::size_t step = 0; step < plan[rank].size(); ++step) {
        const Batch batch = rows.of(step, rank);
        adam.zero_grad();
        nn::cross_entropy(ddp(batch.x), batch.y).backward();
        adam.step();
      }
      join.finish([&] { adam.step(); });
    }
    results[rank] = values_of(model);
  });
  return results;
}

std::vector<std::vector<double>> trained_alone(const Plan& plan) {
  const Rows rows(plan);
  Mlp model = seeded<Mlp>();
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (std::size_t step = 0; step < rows.steps(); ++step) {
      const Batch batch = rows.joined(step);
      adam.zero_grad();
      nn::cross_entropy(model(batch.x), batch.y).backward();
      adam.step();
    }
  }
  return values_of(model);
}

TEST(Join, TrainsAsOneDeviceWithTheJoinedBatches) {
  for (const Plan& plan : kPlans) {
    const auto together = trained_by_ranks(plan);
    for (const auto& rank : together) {
      EXPECT_EQ(rank, together.front());
      expect_near(rank, trained_alone(plan));
    }
    if (plan.size() == 1) {
      EXPECT_EQ(together.front(), trained_alone(plan));
    }
  }
}

TEST(Join, TakesAnyBucketsHooksAndUnusedParameters) {
  const auto by_hand = [](DistributedDataParallel<Mlp>& ddp) {
    ddp.register_comm_hook([](ProcessGroup& group, const parallel::GradBucket& bucket) -> std::function<void()> {
      parallel::Work work = group.all_reduce(bucket.gradients, parallel::ReduceOp::avg, true);
      return [work]() mutable { work.wait(); };
    });
  };
  for (const Plan& plan : kPlans) {
    const auto expected = trained_by_ranks(plan);
    EXPECT_EQ(trained_by_ranks(plan, {.bucket_cap_mb = 1e-6}), expected);
    EXPECT_EQ(trained_by_ranks(plan, {.find_unused_parameters = true}), expected);
    EXPECT_EQ(trained_by_ranks(plan, {}, by_hand), expected);
    EXPECT_EQ(trained_by_ranks(plan, {.bucket_cap_mb = 1e-6}, by_hand), expected);
  }
}

TEST(Join, GivesTheBitsOfAPlainLoopWhereInputsAreEqual) {
  const Plan plan = {{4, 4, 4}, {4, 4, 4}};
  std::vector<std::vector<double>> plain;
  as_ranks(2, [&](ProcessGroup& group) {
    const Rows rows(plan);
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model);
    optim::Adam adam(model.parameters(), {.lr = 0.01});
    for (std::size_t step = 0; step < 6; ++step) {
      const Batch batch = rows.of(step % 3, static_cast<std::size_t>(group.rank()));
      adam.zero_grad();
      nn::cross_entropy(ddp(batch.x), batch.y).backward();
      adam.step();
    }
    if (group.rank() == 0) {
      plain = values_of(model);
    }
  });
  EXPECT_EQ(trained_by_ranks(plan).front(), plain);
}

/// Returns each rank's gradients after `body`; they should be equal on all ranks.
std::vector<std::vector<double>> gradients_by(
    int ranks, const std::function<void(ProcessGroup&, DistributedDataParallel<Mlp>&)>& body) {
  std::vector<std::vector<std::vector<double>>> results(static_cast<std::size_t>(ranks));
  as_ranks(ranks, [&](ProcessGroup& group) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model);
    body(group, ddp);
    for (const Tensor& parameter : model.parameters()) {
      results[static_cast<std::size_t>(group.rank())].push_back(parameter.grad().to_vector<double>());
    }
  });
  for (const auto& rank : results) {
    EXPECT_EQ(rank, results.front());
  }
  return results.front();
}

std::vector<std::vector<double>> gradients_alone(const std::function<Tensor(const Mlp&)>& loss) {
  Mlp model = seeded<Mlp>();
  loss(model).backward();
  std::vector<std::vector<double>> gradients;
  for (const Tensor& parameter : model.parameters()) {
    gradients.push_back(parameter.grad().to_vector<double>());
  }
  return gradients;
}

TEST(Join, WeighsAllSamplesOfAnAccumulationTheSame) {
  // Batches in no_sync(), and how many of them each rank's reduced pass includes. The rest is left over at the end.
  const std::vector<std::tuple<Plan, std::vector<std::size_t>>> cases = {{{{4, 4}, {4, 4}}, {2, 2}},
                                                                         {{{4, 2}, {3, 5}}, {2, 2}},
                                                                         {{{4, 2, 1}, {3, 5}}, {3, 2}},
                                                                         {{{4, 2, 1}, {3}}, {3, 0}},
                                                                         {{{1, 2}, {4, 3, 7}}, {0, 3}},
                                                                         {{{4, 2}, {3}}, {0, 0}},
                                                                         {{{4, 2}, {}}, {0, 0}},
                                                                         {{{4, 2}, {}}, {2, 0}},
                                                                         {{{4, 4}}, {2}},
                                                                         {{{4, 2}}, {2}},
                                                                         {{{4, 2}}, {0}}};
  for (const auto& [plan, reduced] : cases) {
    const auto got = gradients_by(static_cast<int>(plan.size()), [&](ProcessGroup& group, auto& ddp) {
      const auto rank = static_cast<std::size_t>(group.rank());
      const Rows rows(plan);
      Join join(ddp);
      int steps = 0;
      for (std::size_t step = 0; step < plan[rank].size(); ++step) {
        const Batch batch = rows.of(step, rank);
        const auto pass = [&] { nn::cross_entropy(ddp(batch.x), batch.y).backward(); };
        if (step + 1 == reduced[rank]) {
          pass();
          ++steps;
        } else {
          const auto local = ddp.no_sync();
          pass();
        }
      }
      join.finish([&] { ++steps; });
      EXPECT_EQ(steps, 1);
    });
    const Rows rows(plan);
    const auto expected = gradients_alone([&](const Mlp& model) {
      Tensor sum = zeros({}, {.dtype = DType::f64});
      std::int64_t samples = 0;
      for (std::size_t rank = 0; rank < plan.size(); ++rank) {
        for (std::size_t step = 0; step < plan[rank].size(); ++step) {
          const Batch batch = rows.of(step, rank);
          sum = sum + nn::cross_entropy(model(batch.x), batch.y, {.reduction = Reduction::sum});
          samples += batch.x.size(0);
        }
      }
      return sum * (static_cast<double>(rows.steps()) / static_cast<double>(samples));
    });
    expect_near(got, expected);
  }
}

TEST(Join, AddsToGradientsThatWereReducedBefore) {
  const Plan plan = {{4, 2}, {3}, {}};
  const auto got = gradients_by(3, [&](ProcessGroup& group, auto& ddp) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const Rows rows(plan);
    Join join(ddp);
    for (std::size_t step = 0; step < plan[rank].size(); ++step) {
      const Batch batch = rows.of(step, rank);
      nn::cross_entropy(ddp(batch.x), batch.y).backward();
    }
    join.finish([] {});
  });
  const Rows rows(plan);
  expect_near(got, gradients_alone([&](const Mlp& model) {
                const Batch first = rows.joined(0);
                const Batch second = rows.joined(1);
                return nn::cross_entropy(model(first.x), first.y) + nn::cross_entropy(model(second.x), second.y);
              }));
}

TEST(Join, OfSumsWeighsNothing) {
  const Plan plan = {{4}, {}, {1}};
  const auto got = gradients_by(3, [&](ProcessGroup& group, auto& ddp) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const Rows rows(plan);
    Join join(ddp, {.reduction = Reduction::sum});
    for (std::size_t step = 0; step < plan[rank].size(); ++step) {
      const Batch batch = rows.of(step, rank);
      nn::cross_entropy(ddp(batch.x), batch.y, {.reduction = Reduction::sum}).backward();
    }
    join.finish([] {});
  });
  const Rows rows(plan);
  expect_near(got, gradients_alone([&](const Mlp& model) {
                const Batch batch = rows.joined(0);
                return nn::cross_entropy(model(batch.x), batch.y, {.reduction = Reduction::sum}) * (1.0 / 3);
              }));
}

TEST(Join, CountsSamplesWhereItIsTold) {
  // One rank has 1 of the 4 samples or 3 of them, whatever the shapes are.
  struct Scale : nn::Module<Scale> {
    nn::Linear layer = child("layer", nn::Linear(1, 1, {.bias = false}));
    Tensor forward(const Tensor& x, const Tensor& mask) const { return layer(x) * mask; }
  };
  const auto weight_of = [](int batch_dim,
                            const std::function<void(Join&, DistributedDataParallel<Scale>&, int)>& pass) {
    as_ranks(2, [&](ProcessGroup& group) {
      Scale model;
      DistributedDataParallel ddp(model);
      Join join(ddp, {.batch_dim = batch_dim});
      pass(join, ddp, group.rank());
      EXPECT_EQ(model.layer.weight.grad().item<float>(), 0.25F * 1 + 0.75F * 10);
      join.finish([] {});
    });
  };
  const auto value = [](int rank) { return rank == 0 ? 1.0 : 10.0; };
  const auto size = [](int rank) { return rank == 0 ? 1 : 3; };
  weight_of(1, [&](Join&, auto& ddp, int rank) {
    ddp(full({7, size(rank), 1}, value(rank)), ones({1, size(rank), 1})).mean().backward();
  });
  weight_of(0, [&](Join&, auto& ddp, int rank) {
    ddp(full({size(rank), 1}, value(rank)), ones({}))
        .mean()
        .backward();  // an argument without that dimension does not count
  });
  weight_of(0, [&](Join& join, auto& ddp, int rank) {
    join.samples(size(rank));
    ddp(full({2, 1}, value(rank)), ones({1, 1})).mean().backward();
  });
}

TEST(Join, TakesTheBuffersOfTheLowestRankThatHasInput) {
  as_ranks(3, [](ProcessGroup& group) {
    nn::BatchNorm1d norm(1);
    DistributedDataParallel ddp(norm);
    Join join(ddp);
    const int steps = group.rank() == 1 ? 2 : 1;
    for (int step = 0; step < steps; ++step) {
      ddp(full({2, 1}, 10.0 * (group.rank() + step)) + randn({2, 1})).sum().backward();
    }
    join.finish([] {});
    // First rank 0's batch, then rank 1's: 0.9 * 0 + 0.1 * 20.
    EXPECT_NEAR(norm.get_buffer("running_mean").item<double>(), 2.0, 0.5);
    EXPECT_EQ(norm.get_buffer("num_batches_tracked").item<std::int64_t>(), 2);
  });
}

TEST(Join, OfTwoWrappersFollowsEach) {
  std::vector<std::vector<std::vector<double>>> results(2);
  as_ranks(2, [&](ProcessGroup& group) {
    Mlp critic = seeded<Mlp>();
    Mlp generator = seeded<Mlp>();
    DistributedDataParallel first(critic);
    DistributedDataParallel second(generator);
    optim::SGD slow(critic.parameters(), {.lr = 0.1, .momentum = 0.9});
    optim::SGD fast(generator.parameters(), {.lr = 0.5, .momentum = 0.9});
    Join join(std::tie(first, second));
    const Batch batch = batch_of(6);
    for (int step = 0; step < 1 + 3 * group.rank(); ++step) {
      for (int i = 0; i < 2; ++i) {
        slow.zero_grad();
        nn::cross_entropy(first(batch.x), batch.y).backward();
        slow.step();
      }
      fast.zero_grad();
      nn::cross_entropy(second(batch.x), batch.y).backward();
      fast.step();
    }
    join.finish([&] { slow.step(); }, [&] { fast.step(); });
    auto& values = results[static_cast<std::size_t>(group.rank())];
    values = values_of(critic);
    const auto more = values_of(generator);
    values.insert(values.end(), more.begin(), more.end());
  });
  EXPECT_EQ(results[0], results[1]);
}

TEST(Join, WorksOverASubGroup) {
  as_ranks(3, [](ProcessGroup& group) {
    const auto pair = group.new_group({0, 2});
    if (pair == nullptr) {
      return;
    }
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer, {.process_group = pair.get()});
    Join join(ddp);
    if (group.rank() == 2) {
      ddp(full({1, 1}, 3.0)).sum().backward();
    }
    join.finish([] {});
    EXPECT_EQ(layer.weight.grad().item<float>(), 3.0F);
  });
}

struct TupleOfTwo : nn::Module<TupleOfTwo> {
  nn::Linear left = child("left", nn::Linear(1, 1));
  nn::Linear right = child("right", nn::Linear(1, 1));
  std::tuple<Tensor, Tensor> forward(const Tensor& x) const { return {left(x), right(x)}; }
};

TEST(Join, LeavesParametersThatNobodyUsesAlone) {
  as_ranks(2, [](ProcessGroup& group) {
    TupleOfTwo model;
    DistributedDataParallel ddp(model, {.find_unused_parameters = true});
    Join join(ddp);
    {
      // All ranks have a gradient, which the rank that ends keeps.
      const auto [left, right] = ddp(ones({1, 1}));
      (left + right).sum().backward();
    }
    if (group.rank() == 1) {
      model.zero_grad();
      std::get<0>(ddp(full({1, 1}, 5.0))).sum().backward();
    }
    join.finish([] {});
    EXPECT_EQ(model.left.weight.grad().item<float>(), 5.0F);
    EXPECT_FALSE(model.right.weight.grad().defined());
  });
}

TEST(Join, EndsEarlyWhereARankWantsTo) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    optim::SGD sgd(layer.parameters(), {.lr = 0.1});
    Join join(ddp);
    int steps = 0;
    for (int step = 0; step < 5; ++step) {
      if (group.rank() == 0 && step == 2) {
        break;
      }
      sgd.zero_grad();
      ddp(ones({2, 1})).sum().backward();
      sgd.step();
      ++steps;
    }
    join.finish([&] {
      sgd.step();
      ++steps;
    });
    EXPECT_EQ(steps, 5);
    ddp(ones({2, 1})).sum().backward();  // works as without a Join
  });
}

TEST(Join, LeavesLossScalesTheSame) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    optim::SGD sgd(layer.parameters(), {.lr = 0.1});
    optim::GradScaler scaler({.init_scale = 4.0});
    const auto step = [&] {
      scaler.step(sgd);
      scaler.update();
    };
    Join join(ddp);
    const int steps = group.rank() == 1 ? 3 : 1;
    for (int i = 0; i < steps; ++i) {
      const double x = i == 1 ? std::numeric_limits<double>::infinity() : 1.0;
      sgd.zero_grad();
      scaler.scale(ddp(full({2, 1}, x)).mean()).backward();
      step();
    }
    join.finish(step);
    const Tensor mine = stack({layer.weight.detach().reshape({}), full({}, scaler.get_scale())});
    const Tensor other = mine.clone();
    group.broadcast(other, 0);
    EXPECT_EQ(scaler.get_scale(), 2.0);
    EXPECT_EQ(mine.to_vector<float>(), other.to_vector<float>());
  });
}

}  // namespace
}  // namespace tandem::test

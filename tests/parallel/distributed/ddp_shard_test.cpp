#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"
#include "support/message.h"

// DistributedDataParallel that shares out the optimiser's updates (shard).

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;
using parallel::Shard;
using testing::HasSubstr;

using Bits = std::vector<std::vector<double>>;

Bits bits_of(const std::vector<Tensor>& tensors) {
  Bits bits;
  for (const Tensor& tensor : tensors) {
    bits.push_back(tensor.detach().to("cpu:0").to(DType::f64).to_vector<double>());
  }
  return bits;
}

Batch batch_of_step(const ProcessGroup& group, int step, DType dtype) {
  manual_seed(static_cast<std::uint64_t>(1000 * step + group.rank()));
  return {randn({4, 6}, {.dtype = dtype}), randint(0, 3, {4})};
}

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(const std::vector<Tensor>&)>;

struct Case {
  const char* name;
  DType dtype;
  MakeOptimizer make;
};

template <class Optimizer, class Options>
MakeOptimizer maker(const Options& options) {
  return [options](const std::vector<Tensor>& parameters) { return std::make_unique<Optimizer>(parameters, options); };
}

std::vector<Case> cases() {
  return {
      {"Sgd", DType::f32, maker<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9})},
      {"Adam", DType::f32, maker<optim::Adam>(optim::AdamOptions{.lr = 0.01})},
      {"AdamF64", DType::f64, maker<optim::Adam>(optim::AdamOptions{.lr = 0.01, .amsgrad = true})},
      {"AdamWWithMasters", DType::bf16, maker<optim::AdamW>(optim::AdamWOptions{.lr = 0.01, .master_weights = true})},
      {"RMSprop", DType::f32, maker<optim::RMSprop>(optim::RMSpropOptions{.lr = 0.01})},
      {"Adagrad", DType::f32, maker<optim::Adagrad>(optim::AdagradOptions{.lr = 0.01})}};
}

struct Training {
  Shard shard = Shard::optimizer;
  std::optional<double> bucket_cap_mb = std::nullopt;
  bool clips = false;
  bool scales = false;
  bool captures = false;
  int steps = 6;
};

// Returns the weights that each rank ends with.
std::vector<Bits> trained(int ranks, const Case& of, const Training& training) {
  std::vector<Bits> results(static_cast<std::size_t>(ranks));
  as_ranks(ranks, [&](ProcessGroup& group) {
    Mlp model = seeded<Mlp>(of.dtype);
    const std::unique_ptr<optim::Optimizer> optimizer = of.make(model.parameters());
    DistributedDataParallel ddp(model, {.bucket_cap_mb = training.bucket_cap_mb, .shard = training.shard});
    optim::GradScaler scaler({.init_scale = 1024, .enabled = training.scales});
    const auto step = [&](const Tensor& x, const Tensor& y) {
      optimizer->zero_grad();
      scaler.scale(nn::cross_entropy(ddp(x).to(DType::f32), y)).backward();
      if (training.clips) {
        scaler.unscale_(*optimizer);
        optim::clip_grad_norm_(model.parameters(), 0.1);
      }
      scaler.step(*optimizer);
      scaler.update();
    };
    const auto run = [&](auto&& body) {
      for (int i = 0; i < training.steps; ++i) {
        const Batch batch = batch_of_step(group, i, of.dtype);
        body(batch.x, batch.y);
      }
    };
    if (training.captures) {
      auto captured = graph::capture(step);
      run(captured);
    } else {
      run(step);
    }
    const auto whole = ddp.whole_parameters();
    results[static_cast<std::size_t>(group.rank())] = bits_of(model.parameters());
  });
  return results;
}

// Training gives all ranks the same bits with shard as without it.
void expect_as_without(int ranks, const Case& of, Training training) {
  SCOPED_TRACE(testing::Message() << of.name << " on " << ranks << " ranks");
  const std::vector<Bits> got = trained(ranks, of, training);
  training.shard = Shard::none;
  const std::vector<Bits> expected = trained(ranks, of, training);
  for (const Bits& rank : got) {
    EXPECT_EQ(rank, expected.front());
  }
}

class DdpShard : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DdpShard, testing::Values(1, 2, 3, 4));

TEST_P(DdpShard, TrainsToTheBitsOfWholeUpdates) {
  for (const Case& of : cases()) {
    expect_as_without(GetParam(), of, {});
    expect_as_without(GetParam(), of, {.shard = Shard::parameters});
  }
}

TEST_P(DdpShard, TrainsToTheSameBitsWithAnyBucketSize) {
  for (const double mb : {0.0, 2e-4, 1e-3}) {
    for (const Shard shard : {Shard::optimizer, Shard::parameters}) {
      expect_as_without(GetParam(), cases()[1], {.shard = shard, .bucket_cap_mb = mb});
    }
  }
}

TEST_P(DdpShard, TrainsToTheSameBitsInACapturedStep) {
  expect_as_without(GetParam(), cases()[1], {.captures = true});
  expect_as_without(GetParam(), cases()[1], {.scales = true, .captures = true});
}

TEST_P(DdpShard, TrainsToTheSameBitsWithALossThatIsScaled) {
  for (const Shard shard : {Shard::optimizer, Shard::parameters}) {
    expect_as_without(GetParam(), cases()[1], {.shard = shard, .scales = true});
  }
}

// The ranks add the squares in another order than one rank does.
TEST_P(DdpShard, ClipsByTheNormOfAllParts) {
  for (const Training& training : {Training{.clips = true}, Training{.clips = true, .captures = true},
                                   Training{.shard = Shard::parameters, .clips = true}}) {
    const std::vector<Bits> got = trained(GetParam(), cases()[2], training);
    const std::vector<Bits> expected = trained(GetParam(), cases()[2], {.shard = Shard::none, .clips = true});
    for (const Bits& rank : got) {
      EXPECT_EQ(rank, got.front());
      for (std::size_t i = 0; i < rank.size(); ++i) {
        for (std::size_t k = 0; k < rank[i].size(); ++k) {
          EXPECT_NEAR(rank[i][k], expected.front()[i][k], 1e-12);
        }
      }
    }
  }
}

TEST(DdpShardNorms, AreThoseOfWholeGradients) {
  for (const double type : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    std::vector<double> norms;
    std::mutex mutex;
    for (const Shard shard : {Shard::none, Shard::optimizer}) {
      as_ranks(3, [&](ProcessGroup& group) {
        Mlp model = seeded<Mlp>();
        DistributedDataParallel ddp(model, {.shard = shard});
        const Batch batch = batch_of_step(group, 0, DType::f64);
        nn::cross_entropy(ddp(batch.x), batch.y).backward();
        const double norm = optim::clip_grad_norm_(model.parameters(), 1e9, type).item<double>();
        const std::lock_guard lock(mutex);
        norms.push_back(norm);
      });
    }
    for (const double norm : norms) {
      EXPECT_NEAR(norm, norms.front(), 1e-12 * norms.front());
    }
  }
}

TEST(DdpShardMemory, IsOfThisRanksPartAlone) {
  as_ranks(4, [&](ProcessGroup& group) {
    manual_seed(1);
    nn::Linear layer(256, 255);
    DistributedDataParallel ddp(layer, {.shard = Shard::optimizer});
    optim::Adam adam(layer.parameters());
    ddp(ones({2, 256})).sum().backward();
    adam.step();
    std::int64_t elements = 0;
    for (const auto& [name, value] : adam.state_dict(optim::StateParts::own)) {
      elements += name.ends_with(".exp_avg") ? value.numel() : 0;
    }
    const std::int64_t whole = 256 * 255 + 255;
    EXPECT_NEAR(static_cast<double>(elements), static_cast<double>(whole) / group.size(), 64.0);
    EXPECT_NEAR(static_cast<double>(adam.state_bytes()), 8.0 * static_cast<double>(whole) / group.size(), 1024.0);
  });
}

TEST(DdpShardState, IsThatOfWholeUpdates) {
  for (const int ranks : {2, 3}) {
    std::vector<StateDict> own(static_cast<std::size_t>(ranks));
    StateDict expected;
    for (const Shard shard : {Shard::none, Shard::optimizer}) {
      as_ranks(ranks, [&](ProcessGroup& group) {
        Mlp model = seeded<Mlp>();
        DistributedDataParallel ddp(model, {.shard = shard});
        optim::Adam adam(model.parameters(), {.lr = 0.01});
        for (int i = 0; i < 3; ++i) {
          const Batch batch = batch_of_step(group, i, DType::f64);
          adam.zero_grad();
          nn::cross_entropy(ddp(batch.x), batch.y).backward();
          adam.step();
        }
        const StateDict state = adam.state_dict();
        if (shard == Shard::none) {
          if (group.rank() == 0) {
            expected = state.clone();
          }
          return;
        }
        ASSERT_EQ(state.size(), expected.size());
        for (const auto& [name, value] : expected) {
          EXPECT_EQ(bits_of({state.at(name)}), bits_of({value})) << name;
        }
        own[static_cast<std::size_t>(group.rank())] = adam.state_dict(optim::StateParts::own).clone();
      });
    }
    std::swap(own.front(), own.back());  // in any order
    const StateDict joined = optim::join_state_parts(own);
    ASSERT_EQ(joined.size(), expected.size());
    for (const auto& [name, value] : expected) {
      EXPECT_EQ(bits_of({joined.at(name)}), bits_of({value})) << name;
      EXPECT_EQ(joined.at(name).shape(), value.shape()) << name;
    }
    own.pop_back();
    EXPECT_THAT(message_of<ConfigError>([&] { optim::join_state_parts(own); }),
                HasSubstr("expected those of all ranks"));
    own.push_back(own.front());
    EXPECT_THAT(message_of<ConfigError>([&] { optim::join_state_parts(own); }), HasSubstr("is there twice"));
    Mlp model = seeded<Mlp>();
    optim::Adam adam(model.parameters());
    EXPECT_THAT(message_of<ConfigError>([&] { adam.load_state_dict(own.front()); }), HasSubstr("join_state_parts()"));
  }
}

// Trains, takes the state, and goes on with other numbers of ranks, each with the whole batch, as one device does.
TEST(DdpShardState, GoesOnWithAnotherNumberOfRanks) {
  const auto steps = [](auto& net, optim::Optimizer& adam, int first, int last) {
    for (int i = first; i < last; ++i) {
      manual_seed(static_cast<std::uint64_t>(i));
      const Tensor x = randn({4, 6}, {.dtype = DType::f64});
      adam.zero_grad();
      net(x).pow(2).mean().backward();
      adam.step();
    }
  };
  Mlp alone = seeded<Mlp>();
  optim::Adam adam_alone(alone.parameters(), {.lr = 0.01});
  steps(alone, adam_alone, 0, 9);

  StateDict state;
  StateDict weights;
  int done = 0;
  for (const int ranks : {4, 2, 3}) {
    StateDict next;
    StateDict next_weights;
    as_ranks(ranks, [&](ProcessGroup& group) {
      Mlp model = seeded<Mlp>();
      if (done > 0) {
        model.load_state_dict(weights);
      }
      optim::Adam adam(model.parameters(), {.lr = 0.01});
      if (done > 0 && ranks == 2) {
        adam.load_state_dict(state);  // before wrapping
      }
      DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
      if (done > 0 && ranks == 3) {
        adam.load_state_dict(state);  // after wrapping
      }
      steps(ddp, adam, done, done + 3);
      const StateDict all = adam.state_dict();
      if (group.rank() == 0) {
        next = all.clone();
        next_weights = model.state_dict().clone();
      }
    });
    state = next;
    weights = next_weights;
    done += 3;
  }
  for (const auto& [name, value] : alone.state_dict()) {
    EXPECT_LE(difference(weights.at(name), value), 1e-12) << name;
  }
}

TEST(DdpShard, WrapsAModelWhoseOptimizerHasStepped) {
  as_ranks(2, [&](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    Mlp other = seeded<Mlp>();
    optim::Adam adam(model.parameters(), {.lr = 0.01});
    optim::Adam other_adam(other.parameters(), {.lr = 0.01});
    const Batch batch = batch_of(4);
    const auto step = [&](auto& net, optim::Optimizer& optimizer) {
      optimizer.zero_grad();
      nn::cross_entropy(net(batch.x), batch.y).backward();
      optimizer.step();
    };
    step(model, adam);
    step(other, other_adam);
    {
      DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
      step(ddp, adam);
      step(other, other_adam);
      EXPECT_LE(difference(model.fc1.weight, other.fc1.weight), 1e-12);
    }
    // This rank no longer has the other's state.
    EXPECT_THAT(message_of<ConfigError>([&] { step(model, adam); }),
                HasSubstr("that is gone has shared it out (shard)"));
    EXPECT_THAT(message_of<ConfigError>([&] { adam.state_dict(); }), HasSubstr("take the state while it lives"));
  });
}

// Training with and without shard gives all ranks the same bits.
void expect_the_same_bits(int ranks, const std::function<void(ProcessGroup& group, Mlp& model, Shard shard)>& train) {
  std::vector<Bits> results;
  std::mutex mutex;
  for (const Shard shard : {Shard::none, Shard::optimizer}) {
    as_ranks(ranks, [&](ProcessGroup& group) {
      Mlp model = seeded<Mlp>();
      train(group, model, shard);
      const std::lock_guard lock(mutex);
      results.push_back(bits_of(model.parameters()));
    });
  }
  for (const Bits& bits : results) {
    EXPECT_EQ(bits, results.front());
  }
}

TEST(DdpShard, GivesBackTheMemoryOfOtherRanksGradients) {
  constexpr std::int64_t kPages = 3 * 4096;  // less than a page at each end of a part, in each of a few buckets
  for (const int ranks : {2, 4}) {
    as_ranks(ranks, [&](ProcessGroup& group) {
      const auto train = [&](Shard shard, double bucket_cap_mb) {
        manual_seed(5);
        nn::Sequential model(nn::Linear(256, 512), nn::ReLU(), nn::Linear(512, 256));
        DistributedDataParallel ddp(model, {.bucket_cap_mb = bucket_cap_mb, .shard = shard});
        optim::Adam adam(model.parameters());
        const auto whole = 4 * model.num_parameters();
        for (int i = 0; i < 3; ++i) {
          adam.zero_grad();
          ddp(randn({4, 256})).sum().backward();
          const std::int64_t bytes = ddp.gradient_bytes();
          if (shard == Shard::gradients) {
            EXPECT_LE(bytes, whole / group.size() + 2 * kPages);
          } else {
            EXPECT_GE(bytes, whole);
          }
          adam.step();
        }
        return bits_of(model.parameters());
      };
      for (const double bucket_cap_mb : {0.6, 25.0}) {
        EXPECT_EQ(train(Shard::gradients, bucket_cap_mb), train(Shard::optimizer, bucket_cap_mb));
      }
    });
  }
}

TEST(DdpShard, AddsUpGradientsWithinNoSync) {
  expect_the_same_bits(2, [](ProcessGroup& group, Mlp& model, Shard shard) {
    DistributedDataParallel ddp(model, {.shard = shard});
    optim::Adam adam(model.parameters(), {.lr = 0.01});
    for (int i = 0; i < 3; ++i) {
      adam.zero_grad();
      {
        const auto local = ddp.no_sync();
        const Batch batch = batch_of_step(group, 2 * i, DType::f64);
        nn::cross_entropy(ddp(batch.x), batch.y).backward();
      }
      const Batch batch = batch_of_step(group, 2 * i + 1, DType::f64);
      nn::cross_entropy(ddp(batch.x), batch.y).backward();
      adam.step();
    }
  });
}

TEST(DdpShard, LeavesOutAStepInWhichOneRankHasAnInfiniteGradient) {
  for (const int bad : {0, 1, 2}) {
    for (const bool scales : {false, true}) {
      as_ranks(3, [&](ProcessGroup& group) {
        Mlp model = seeded<Mlp>();
        DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
        optim::SGD sgd(model.parameters(), {.lr = 0.1});
        optim::GradScaler scaler({.init_scale = 8, .enabled = scales});
        sgd.skip_nonfinite(!scales);
        const Bits before = bits_of(model.parameters());
        const Tensor x = full({2, 6}, group.rank() == bad ? 1e308 : 1.0, {.dtype = DType::f64});
        scaler.scale(ddp(x).sum() * 1e10).backward();
        scaler.step(sgd);
        scaler.update();
        EXPECT_EQ(bits_of(model.parameters()), before);
        EXPECT_TRUE(scales ? scaler.get_scale() == 4 : sgd.found_nonfinite());
        sgd.zero_grad();
        scaler.scale(ddp(full({2, 6}, 1.0, {.dtype = DType::f64})).sum()).backward();
        scaler.step(sgd);
        EXPECT_NE(bits_of(model.parameters()), before);
      });
    }
  }
}

TEST(DdpShard, LeavesParametersAloneThatNoRankUses) {
  struct Net : nn::Module<Net> {
    nn::Linear used = child("used", nn::Linear(6, 40));
    nn::Linear unused = child("unused", nn::Linear(6, 40));
    Tensor forward(const Tensor& x) const { return used(x); }
  };
  as_ranks(2, [&](ProcessGroup&) {
    manual_seed(3);
    Net model;
    DistributedDataParallel ddp(model, {.find_unused_parameters = true, .shard = Shard::optimizer});
    optim::Adam adam(model.parameters(), {.lr = 0.01});
    const Bits used = bits_of({model.used.weight});
    const Bits unused = bits_of({model.unused.weight});
    for (int i = 0; i < 3; ++i) {
      adam.zero_grad();
      ddp(ones({2, 6})).sum().backward();
      adam.step();
    }
    EXPECT_NE(bits_of({model.used.weight}), used);
    EXPECT_EQ(bits_of({model.unused.weight}), unused);
  });
}

TEST(DdpShard, JoinsRanksWithUnequalInputs) {
  expect_the_same_bits(3, [](ProcessGroup& group, Mlp& model, Shard shard) {
    DistributedDataParallel ddp(model, {.shard = shard});
    optim::Adam adam(model.parameters(), {.lr = 0.01});
    parallel::Join join(ddp);
    for (int i = 0; i < 4 - group.rank(); ++i) {
      const Batch batch = batch_of_step(group, i, DType::f64);
      adam.zero_grad();
      nn::cross_entropy(ddp(batch.x), batch.y).backward();
      adam.step();
    }
    join.finish([&] { adam.step(); });
  });
}

TEST(DdpShard, ServesTwoOptimizers) {
  expect_the_same_bits(2, [](ProcessGroup& group, Mlp& model, Shard shard) {
    DistributedDataParallel ddp(model, {.bucket_cap_mb = 0, .shard = shard});
    optim::Adam body(model.fc1.parameters(), {.lr = 0.01});
    optim::SGD head({{.params = model.fc2.parameters()}, {.params = model.fc3.parameters(), .lr = 0.2}}, {.lr = 0.1});
    for (int i = 0; i < 4; ++i) {
      const Batch batch = batch_of_step(group, i, DType::f64);
      body.zero_grad();
      head.zero_grad();
      nn::cross_entropy(ddp(batch.x), batch.y).backward();
      head.step();
      body.step();
    }
  });
}

// The state is whole while the optimiser has not stepped since the model was wrapped.
TEST(DdpShardState, HasPartsBeforeTheFirstStepToo) {
  for (const bool has_stepped : {false, true}) {
    std::vector<StateDict> own(3);
    StateDict whole;
    as_ranks(3, [&](ProcessGroup& group) {
      Mlp model = seeded<Mlp>();
      optim::Adam adam(model.parameters());
      if (has_stepped) {
        model(batch_of(4).x).sum().backward();
        adam.step();
        adam.zero_grad();
      }
      DistributedDataParallel ddp(model, {.shard = Shard::optimizer});
      own[static_cast<std::size_t>(group.rank())] = adam.state_dict(optim::StateParts::own).clone();
      const StateDict all = adam.state_dict();
      if (group.rank() == 0) {
        whole = all.clone();
      }
    });
    const StateDict joined = optim::join_state_parts(own);
    ASSERT_EQ(joined.size(), whole.size());
    for (const auto& [name, value] : whole) {
      EXPECT_EQ(bits_of({joined.at(name)}), bits_of({value})) << name;
    }
  }
}

}  // namespace
}  // namespace tandem::test

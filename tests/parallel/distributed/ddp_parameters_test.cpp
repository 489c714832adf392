#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"
#include "support/warnings.h"

// DistributedDataParallel whose ranks keep parts of the parameters (shard = parameters).

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;
using parallel::Shard;

constexpr double kTiny = 2e-4;  // MiB: each Linear of an Mlp is a bucket, or two

Batch rows_of_step(int step, int rank, int ranks) {
  manual_seed(static_cast<std::uint64_t>(step));
  const Tensor x = randn({8, 6}, {.dtype = DType::f64});
  const Tensor y = randint(0, 3, {8});
  return {x.narrow(0, 8 / ranks * rank, 8 / ranks), y.narrow(0, 8 / ranks * rank, 8 / ranks)};
}

template <class Net>
void step_on(Net& net, optim::Optimizer& optimizer, const Batch& batch) {
  optimizer.zero_grad();
  nn::cross_entropy(net(batch.x), batch.y).backward();
  optimizer.step();
}

StateDict steps_of_one_device(int steps) {
  Mlp model = seeded<Mlp>();
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  for (int i = 0; i < steps; ++i) {
    step_on(model, adam, rows_of_step(i, 0, 1));
  }
  return model.state_dict().clone();
}

void expect_close(const StateDict& got, const StateDict& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, value] : expected) {
    EXPECT_LE(difference(got.at(name), value), 1e-12) << name;
  }
}

TEST(DdpParameters, TrainAsOnOneDevice) {
  constexpr int kSteps = 50;
  const StateDict expected = steps_of_one_device(kSteps);
  for (const int ranks : {2, 4}) {
    for (const double bucket_cap_mb : {kTiny, 25.0}) {
      as_ranks(ranks, [&](ProcessGroup& group) {
        std::vector<StateDict> states;
        for (const Shard shard : {Shard::optimizer, Shard::parameters}) {
          Mlp model = seeded<Mlp>();
          optim::Adam adam(model.parameters(), {.lr = 0.01});
          DistributedDataParallel ddp(model, {.bucket_cap_mb = bucket_cap_mb, .shard = shard});
          for (int i = 0; i < kSteps; ++i) {
            step_on(ddp, adam, rows_of_step(i, group.rank(), ranks));
          }
          states.push_back(model.state_dict().clone());
        }
        expect_close(states.back(), expected);
        for (const auto& [name, value] : states.front()) {
          EXPECT_EQ(states.back().at(name).to_vector<double>(), value.to_vector<double>()) << name;
        }
      });
    }
  }
}

// Layers of 1 MiB each, and buckets of about that size.
struct Deep : nn::Module<Deep> {
  nn::Linear a = child("a", nn::Linear(512, 512));
  nn::Linear b = child("b", nn::Linear(512, 512));
  nn::Linear c = child("c", nn::Linear(512, 512));
  nn::Linear d = child("d", nn::Linear(512, 512));
  nn::Linear e = child("e", nn::Linear(512, 512));
  nn::Linear f = child("f", nn::Linear(512, 512));
  Tensor forward(const Tensor& x) const { return f(relu(e(relu(d(relu(c(relu(b(relu(a(x))))))))))); }
};

TEST(DdpParameters, TakeTheMemoryOfOnePartBetweenStepsAndOfFewBucketsInThem) {
  constexpr std::int64_t kPages = 4 * 4096;  // the ends of a bucket and of a part
  for (const int ranks : {2, 4}) {
    as_ranks(ranks, [&](ProcessGroup&) {
      manual_seed(5);
      Deep model;
      DistributedDataParallel ddp(model, {.bucket_cap_mb = 0.9, .shard = Shard::parameters});
      optim::Adam adam(model.parameters());
      const std::int64_t whole = 4 * model.num_parameters();
      const std::int64_t bucket = whole / 6;
      const std::int64_t own = whole / ranks + 6 * kPages;
      EXPECT_LE(ddp.parameter_bytes(), own);
      for (int i = 0; i < 3; ++i) {
        adam.zero_grad();
        const Tensor loss = ddp(randn({4, 512})).sum();
        EXPECT_LE(ddp.parameter_bytes(), own + bucket + kPages);  // the last layer's stays for the backward pass
        loss.backward();
        EXPECT_LE(ddp.parameter_bytes(), own);
        adam.step();
        EXPECT_LE(ddp.parameter_bytes(), own);
      }
      EXPECT_LE(ddp.peak_parameter_bytes(), own + 2 * bucket + kPages);  // the one in use and the next
      {
        const NoGradGuard no_grad;
        ddp(randn({4, 512}));
        EXPECT_LE(ddp.parameter_bytes(), own);
      }
      {
        const auto all = ddp.whole_parameters();
        EXPECT_GE(ddp.parameter_bytes(), whole);
      }
      EXPECT_LE(ddp.parameter_bytes(), own);
      EXPECT_GE(ddp.peak_parameter_bytes(), whole);
      EXPECT_LE(ddp.gradient_bytes(), own);
    });
  }
}

TEST(DdpParameters, OfManyPagesTrainToTheBitsOfWholeParameters) {
  for (const double bucket_cap_mb : {0.0, 0.3, 0.9, 2.5}) {
    as_ranks(3, [&](ProcessGroup& group) {
      std::vector<StateDict> states;
      for (const Shard shard : {Shard::none, Shard::parameters}) {
        manual_seed(5);
        Deep model;
        DistributedDataParallel ddp(model, {.bucket_cap_mb = bucket_cap_mb, .shard = shard});
        optim::SGD sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9});
        for (int i = 0; i < 4; ++i) {
          sgd.zero_grad();
          manual_seed(static_cast<std::uint64_t>(7 * i + group.rank()));
          ddp(randn({4, 512})).pow(2).mean().backward();
          sgd.step();
        }
        states.push_back(model.state_dict().clone());
      }
      for (const auto& [name, value] : states.front()) {
        EXPECT_EQ(difference(states.back().at(name), value), 0) << name;
      }
    });
  }
}

TEST(DdpParameters, AreWholeOnAllRanksWithoutTheOption) {
  as_ranks(2, [](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.shard = Shard::gradients});
    const auto whole = ddp.whole_parameters();
    EXPECT_GE(ddp.parameter_bytes(), 8 * model.num_parameters());
    EXPECT_GE(ddp.peak_parameter_bytes(), 8 * model.num_parameters());
  });
}

TEST(DdpParameters, ServeEvaluationThroughTheWrapperAndWithinAScope) {
  as_ranks(3, [](ProcessGroup& group) {
    Mlp model = seeded<Mlp>();
    const Tensor x = batch_of(4).x;
    const NoGradGuard no_grad;
    const Tensor expected = model(x);
    DistributedDataParallel ddp(model, {.bucket_cap_mb = kTiny, .shard = Shard::parameters});
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(difference(ddp(x), expected), 0);
    }
    const auto whole = ddp.whole_parameters();
    for (int i = 0; i <= group.rank(); ++i) {  // ranks may differ here
      EXPECT_EQ(difference(model(x), expected), 0);
      EXPECT_EQ(difference(ddp(x), expected), 0);
    }
  });
}

// A forward pass for evaluation, with gradients on, leaves its last bucket here when the optimiser steps.
TEST(DdpParameters, AreNeverThoseOfTheStepBefore) {
  const StateDict expected = steps_of_one_device(6);
  const auto train = [&](ProcessGroup& group, double bucket_cap_mb) {
    Mlp model = seeded<Mlp>();
    optim::Adam adam(model.parameters(), {.lr = 0.01});
    DistributedDataParallel ddp(model, {.bucket_cap_mb = bucket_cap_mb, .shard = Shard::parameters});
    for (int i = 0; i < 6; ++i) {
      const Batch batch = rows_of_step(i, group.rank(), 2);
      adam.zero_grad();
      nn::cross_entropy(ddp(batch.x), batch.y).backward();
      const Tensor unused = ddp(batch.x);
      std::optional<parallel::WholeParameters> whole;
      if (i % 2 == 1) {
        whole.emplace(ddp.whole_parameters());
      }
      adam.step();
      if (whole) {
        const Tensor mine = model.fc1.weight.detach().clone();
        const Tensor of_rank_0 = mine.clone();
        group.broadcast(of_rank_0, 0);
        EXPECT_EQ(difference(mine, of_rank_0), 0);
      }
    }
    expect_close(model.state_dict(), expected);
  };
  for (const double bucket_cap_mb : {kTiny, 25.0}) {  // with one bucket, the last one is the next pass's first
    as_ranks(2, [&](ProcessGroup& group) { train(group, bucket_cap_mb); });
  }
}

TEST(DdpParameters, KeepWhatAllRanksWriteWithinAScope) {
  as_ranks(2, [](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.bucket_cap_mb = kTiny, .shard = Shard::parameters});
    {
      const auto whole = ddp.whole_parameters();
      const NoGradGuard no_grad;
      for (Tensor parameter : model.parameters()) {
        parameter.fill_(0.5);
      }
    }
    for (const auto& [name, value] : model.state_dict()) {
      EXPECT_EQ(difference(value, full_like(value, 0.5)), 0) << name;
    }
  });
}

TEST(DdpParameters, StayWholeIfTheWrapperGoesWithinAScope) {
  as_ranks(2, [](ProcessGroup& group) {
    Mlp model = seeded<Mlp>();
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    auto ddp = std::make_unique<DistributedDataParallel<Mlp>>(
        model, parallel::DistributedOptions{.bucket_cap_mb = kTiny, .shard = Shard::parameters});
    step_on(*ddp, sgd, rows_of_step(0, group.rank(), 2));
    const auto whole = ddp->whole_parameters();
    const StateDict state = model.state_dict();
    ddp.reset();
    for (const auto& [name, value] : model.state_dict()) {
      EXPECT_EQ(difference(value, state.at(name)), 0) << name;
    }
    step_on(model, sgd, rows_of_step(1, 0, 1));
  });
}

// Trains, takes the state, and goes on with other numbers of ranks.
TEST(DdpParameters, GoOnFromAStateOfOtherRanks) {
  const StateDict expected = steps_of_one_device(9);
  StateDict weights;
  StateDict moments;
  int done = 0;
  for (const int ranks : {4, 2, 4}) {
    StateDict next_weights;
    StateDict next_moments;
    as_ranks(ranks, [&](ProcessGroup& group) {
      Mlp model;
      model.to(DType::f64);
      if (done == 0) {
        model = seeded<Mlp>();
      }
      DistributedDataParallel ddp(model, {.bucket_cap_mb = kTiny, .shard = Shard::parameters});
      optim::Adam adam(model.parameters(), {.lr = 0.01});
      if (done > 0) {
        model.load_state_dict(weights);
        adam.load_state_dict(moments);
      }
      for (int i = done; i < done + 3; ++i) {
        step_on(ddp, adam, rows_of_step(i, group.rank(), ranks));
      }
      const StateDict all = model.state_dict();
      const StateDict all_moments = adam.state_dict();
      if (group.rank() == 0) {
        next_weights = all.clone();
        next_moments = all_moments.clone();
      }
    });
    weights = next_weights;
    moments = next_moments;
    done += 3;
  }
  expect_close(weights, expected);
}

// Two trainings give all ranks the same bits, one with this option and one with the whole parameters on each rank.
template <class Net>
void expect_the_bits_of_whole_parameters(
    const std::function<void(ProcessGroup&, Net&, DistributedDataParallel<Net>&, optim::Optimizer&)>& train) {
  std::vector<StateDict> results;
  std::mutex mutex;
  for (const Shard shard : {Shard::none, Shard::parameters}) {
    as_ranks(2, [&](ProcessGroup& group) {
      Net model = seeded<Net>();
      optim::Adam adam(model.parameters(), {.lr = 0.01});
      DistributedDataParallel<Net> ddp(model, {.bucket_cap_mb = kTiny, .shard = shard});
      train(group, model, ddp, adam);
      const StateDict state = model.state_dict().clone();
      const std::lock_guard lock(mutex);
      results.push_back(state);
    });
  }
  for (const StateDict& result : results) {
    for (const auto& [name, value] : results.front()) {
      EXPECT_EQ(difference(result.at(name), value), 0) << name;
    }
  }
}

TEST(DdpParameters, ServePassesOfNoSync) {
  expect_the_bits_of_whole_parameters<Mlp>([](ProcessGroup& group, Mlp&, auto& ddp, optim::Optimizer& adam) {
    for (int i = 0; i < 4; ++i) {
      adam.zero_grad();
      {
        const auto local = ddp.no_sync();
        const Batch batch = rows_of_step(2 * i, group.rank(), 2);
        nn::cross_entropy(ddp(batch.x), batch.y).backward();
      }
      const Batch batch = rows_of_step(2 * i + 1, group.rank(), 2);
      const Tensor first = ddp(batch.x);
      nn::cross_entropy(first + ddp(batch.x * 2), batch.y).backward();  // two outputs in one pass
      adam.step();
    }
  });
}

TEST(DdpParameters, ServeLayersWithBuffers) {
  expect_the_bits_of_whole_parameters<NormedMlp>([](ProcessGroup& group, NormedMlp&, auto& ddp, auto& adam) {
    for (int i = 0; i < 4; ++i) {
      step_on(ddp, adam, rows_of_step(i, group.rank(), 2));
    }
  });
}

// Layers of several pages, which are empty after a bucket was given back. The buckets of smaller layers keep old
// values.
constexpr int kWide = 64;

struct Tied : nn::Module<Tied> {
  nn::Linear in = child("in", nn::Linear(6, kWide));
  nn::Linear one = child("one", nn::Linear(kWide, kWide));
  nn::Linear middle = child("middle", nn::Linear(kWide, kWide));
  nn::Linear out = child("out", nn::Linear(kWide, 3));
  nn::Linear again = child("again", nn::Linear(kWide, kWide));
  Tied() { tie(again.weight, one.weight); }
  Tensor forward(const Tensor& x) const { return out(relu(again(relu(middle(relu(one(relu(in(x))))))))); }
};

TEST(DdpParameters, MayBeTied) {
  expect_the_bits_of_whole_parameters<Tied>([](ProcessGroup& group, Tied&, auto& ddp, auto& adam) {
    for (int i = 0; i < 4; ++i) {
      step_on(ddp, adam, rows_of_step(i, group.rank(), 2));
    }
  });
}

// One op takes the addresses of parameters in all buckets, and a detached handle leads to none of their leaves.
struct Mixed : nn::Module<Mixed> {
  nn::Linear in = child("in", nn::Linear(6, kWide));
  nn::Linear first = child("first", nn::Linear(kWide, kWide));
  nn::Linear second = child("second", nn::Linear(kWide, kWide));
  nn::Linear third = child("third", nn::Linear(kWide, kWide));
  nn::Linear head = child("head", nn::Linear(kWide, 3));
  Tensor forward(const Tensor& rows) const {
    const Tensor x = in(rows);
    const Tensor all = cat({first.weight, second.weight, third.weight});
    const Tensor hidden = relu(first(x)) + relu(x.matmul(all.t())).narrow(1, 3, kWide);
    const Tensor product = first.weight * second.weight + third.weight;
    const Tensor fixed =
        relu(x.matmul(product)) + relu(hidden.matmul(third.weight.detach().t()) * second.weight.detach().select(0, 0));
    return head(second(fixed) + third(hidden));
  }
};

TEST(DdpParameters, ServeOpsOnParametersOfManyBuckets) {
  expect_the_bits_of_whole_parameters<Mixed>([](ProcessGroup& group, Mixed&, auto& ddp, auto& adam) {
    for (int i = 0; i < 4; ++i) {
      step_on(ddp, adam, rows_of_step(i, group.rank(), 2));
    }
  });
}

// The layers that a pass uses may change from step to step, on all ranks alike.
struct Switched : nn::Module<Switched> {
  nn::Linear in = child("in", nn::Linear(6, kWide));
  nn::Linear a = child("a", nn::Linear(kWide, kWide));
  nn::Linear b = child("b", nn::Linear(kWide, kWide));
  nn::Linear c = child("c", nn::Linear(kWide, 3));
  mutable int calls = 0;
  Tensor forward(const Tensor& rows) const {
    const Tensor x = in(rows);
    return c(++calls % 2 == 0 ? a(relu(b(x))) : b(relu(a(relu(b(x))))));
  }
};

TEST(DdpParameters, ServePassesInAnotherOrderThanThePassBefore) {
  expect_the_bits_of_whole_parameters<Switched>([](ProcessGroup& group, Switched&, auto& ddp, auto& adam) {
    for (int i = 0; i < 6; ++i) {
      step_on(ddp, adam, rows_of_step(i, group.rank(), 2));
    }
  });
}

TEST(DdpParameters, ServeAverages) {
  expect_the_bits_of_whole_parameters<Mlp>([](ProcessGroup& group, Mlp& model, auto& ddp, auto& adam) {
    std::optional<optim::EMA> ema;
    {
      const auto whole = ddp.whole_parameters();
      ema.emplace(model.parameters(), optim::EMAOptions{.decay = 0.5});
    }
    for (int i = 0; i < 4; ++i) {
      step_on(ddp, adam, rows_of_step(i, group.rank(), 2));
      const auto whole = ddp.whole_parameters();
      ema->update();
    }
    const auto whole = ddp.whole_parameters();
    const NoGradGuard no_grad;
    for (std::size_t p = 0; p < model.parameters().size(); ++p) {
      model.parameters()[p].copy_(ema->averages()[p]);
    }
  });
}

TEST(DdpParameters, AreNotRecordedByCapturedFunctions) {
  as_ranks(2, [&](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.bucket_cap_mb = kTiny, .shard = Shard::parameters});
    auto outputs = graph::capture([&](const Tensor& x) {
      const NoGradGuard no_grad;
      return model(x);
    });
    const auto whole = ddp.whole_parameters();
    const Tensor x = ones({2, 6}, {.dtype = DType::f64});
    const auto call = [&] {
      for (int i = 0; i < 3; ++i) {
        outputs(x);
      }
    };
    EXPECT_THAT(message_of<CaptureError>(call), testing::HasSubstr("since its replays would use the parameter without "
                                                                   "gathering it (shard = parameters)"));
  });
}

TEST(DdpParameters, AreNotSharedOutAgainFromTheirParts) {
  as_ranks(2, [&](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    {
      const DistributedDataParallel ddp(model, {.bucket_cap_mb = kTiny, .shard = Shard::parameters});
    }
    const auto wrap = [&] {
      DistributedDataParallel(model, {.init_sync = false, .bucket_cap_mb = 25.0, .shard = Shard::parameters});
    };
    EXPECT_THAT(message_of<ConfigError>(wrap), testing::HasSubstr("so that this rank has only a part of it"));
  });
}

TEST(DdpParameters, SurviveAScopeOfAveragesThatEndsTooLate) {
  Warnings warnings;
  as_ranks(2, [&](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.bucket_cap_mb = kTiny, .shard = Shard::parameters});
    std::optional<optim::EMA> ema;
    std::optional<optim::EMA::Scope> averages;
    {
      const auto whole = ddp.whole_parameters();
      ema.emplace(model.parameters());
      averages.emplace(*ema);
    }
    averages.reset();
  });
  EXPECT_THAT(warnings.texts(), testing::Each(testing::HasSubstr("EMA: the averages stay in the parameters")));
  EXPECT_FALSE(warnings.texts().empty());
}

TEST(DdpParameters, ServePassesAfterOneThatFailedOnAllRanks) {
  expect_the_bits_of_whole_parameters<Mlp>([](ProcessGroup& group, Mlp&, auto& ddp, auto& adam) {
    for (int i = 0; i < 3; ++i) {
      step_on(ddp, adam, rows_of_step(i, group.rank(), 2));
      EXPECT_THROW(ddp(ones({2, 5}, {.dtype = DType::f64})), ShapeError);
    }
  });
}

TEST(DdpParameters, OfOtherModelsAreFreeToUseMeanwhile) {
  as_ranks(2, [](ProcessGroup& group) {
    Mlp model = seeded<Mlp>();
    Mlp other = seeded<Mlp>();
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    DistributedDataParallel ddp(model, {.bucket_cap_mb = kTiny, .shard = Shard::parameters});
    if (group.rank() == 1) {
      other(batch_of(4).x).sum().backward();
    }
    step_on(ddp, sgd, rows_of_step(0, group.rank(), 2));
  });
}

TEST(DdpParameters, OfTwoWrappersServeOnePass) {
  std::vector<StateDict> results;
  for (const Shard shard : {Shard::none, Shard::parameters}) {
    as_ranks(2, [&](ProcessGroup& group) {
      Mlp first = seeded<Mlp>();
      Mlp second = seeded<Mlp>();
      optim::SGD sgd(first.parameters(), {.lr = 0.1});
      optim::Adam adam(second.parameters(), {.lr = 0.01});
      DistributedDataParallel one(first, {.bucket_cap_mb = kTiny, .shard = shard});
      DistributedDataParallel two(second, {.bucket_cap_mb = kTiny, .shard = shard});
      for (int i = 0; i < 3; ++i) {
        const Batch batch = rows_of_step(i, group.rank(), 2);
        sgd.zero_grad();
        adam.zero_grad();
        nn::cross_entropy(one(batch.x) * two(batch.x), batch.y).backward();
        sgd.step();
        adam.step();
      }
      const StateDict state = first.state_dict().clone();
      const StateDict state_of_second = second.state_dict().clone();
      if (group.rank() == 0) {
        results.push_back(state);
        results.push_back(state_of_second);
      }
    });
  }
  for (const std::size_t i : {0, 1}) {
    for (const auto& [name, value] : results[i]) {
      EXPECT_EQ(difference(results[i + 2].at(name), value), 0) << name;
    }
  }
}

}  // namespace
}  // namespace tandem::test

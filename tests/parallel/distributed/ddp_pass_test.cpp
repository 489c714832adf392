#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"

// Where a backward pass begins and ends, which gradients are then means over the ranks, and which failures end the
// group.

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;
using ::testing::HasSubstr;

struct WithTemperature : nn::Module<WithTemperature> {
  nn::Linear layer = child("layer", nn::Linear(2, 2));
  Tensor temperature = parameter("temperature", ones({1}));
  Tensor forward(const Tensor& x) const { return layer(x); }
};

/// A rank's gradients, concatenated.
std::vector<float> gradients_of(const nn::ModuleRef& model) {
  std::vector<float> all;
  for (const Tensor& parameter : model.parameters()) {
    const std::vector<float> one = parameter.grad().to("cpu:0").to_vector<float>();
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

Tensor row(double value) { return full({1, 3}, value); }

// Models a loss that uses a parameter beside the module's output, such as the mixing weights of several losses.
TEST(DdpPass, TakesAParameterThatTheLossUsesItself) {
  const auto loss_of = [](const Tensor& output, const Tensor& temperature) {
    return output.pow(2).mean() * exp(-temperature).sum() + temperature.sum();
  };
  manual_seed(1);
  WithTemperature alone;
  const Tensor x = randn({4, 2});
  loss_of(alone(x), alone.temperature).backward();
  const std::vector<float> expected = gradients_of(alone);
  as_ranks(2, [&](ProcessGroup& group) {
    WithTemperature model;
    model.load_state_dict(alone.state_dict());
    DistributedDataParallel ddp(model);
    const Tensor part = x.narrow(0, 2 * group.rank(), 2).to(model.temperature.device());
    loss_of(ddp(part), model.temperature).backward();
    EXPECT_THAT(gradients_of(model), ::testing::Pointwise(::testing::FloatNear(1e-5F), expected));
    model.zero_grad();
    // Uses the module's own layer after the wrapper's output.
    model.layer(ddp(part).pow(2) * model.temperature).sum().backward();
  });
}

TEST(DdpPass, ShowsHooksOfParametersWhatIsOfAllRanks) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(3, 1, {.bias = false});
    DistributedDataParallel ddp(layer, {.bucket_cap_mb = 1e-6});
    std::vector<float> seen;
    const HookHandle hook = layer.weight.register_post_accumulate_grad_hook([&](const Tensor& weight) {
      seen = weight.grad().to("cpu:0").to_vector<float>();
      weight.grad().mul_(0.5);
    });
    ddp(row(group.rank() == 0 ? 1 : 3)).sum().backward();
    EXPECT_EQ(seen, std::vector<float>(3, 2.0F)) << "the mean over the ranks";
    EXPECT_EQ(gradients_of(layer), std::vector<float>(3, 1.0F));
    const auto local = ddp.no_sync();
    ddp(row(group.rank() == 0 ? 1 : 3)).sum().backward();
    EXPECT_EQ(seen, std::vector<float>(3, group.rank() == 0 ? 2.0F : 4.0F)) << "what is there";
  });
}

TEST(DdpPass, LetsAnOptimiserStepInHooks) {
  std::vector<std::vector<float>> weights(2);
  as_ranks(2, [&](ProcessGroup& group) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.bucket_cap_mb = 1e-4});
    std::vector<HookHandle> hooks;
    for (Tensor parameter : model.parameters()) {
      hooks.push_back(parameter.register_post_accumulate_grad_hook([](const Tensor& p) {
        const NoGradGuard no_grad;
        Tensor weight = p;
        weight.copy_(p.detach() - p.grad() * 0.1);
      }));
    }
    for (int step = 0; step < 5; ++step) {
      model.zero_grad();
      const Batch batch = batch_of(4 + group.rank());
      nn::cross_entropy(ddp(batch.x), batch.y).backward();
    }
    weights[static_cast<std::size_t>(group.rank())] =
        model.fc1.weight.detach().to("cpu:0").to(DType::f32).to_vector<float>();
  });
  EXPECT_EQ(weights[0], weights[1]);
}

TEST(DdpPass, EndsTheGroupWhenAHookOfAParameterFails) {
  std::string text;
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(3, 1);
    DistributedDataParallel ddp(layer);
    HookHandle hook;
    if (group.rank() == 1) {
      hook = layer.weight.register_post_accumulate_grad_hook([](const Tensor&) { throw ValueError("not this one"); });
      EXPECT_THROW(ddp(ones({1, 3})).sum().backward(), ValueError);
    } else {
      ddp(ones({1, 3})).sum().backward();
      text = message_of<CommError>([&] { ddp(ones({1, 3})).sum().backward(); });
    }
  });
  EXPECT_THAT(text, HasSubstr("aborted by rank 1: a hook of a parameter failed: not this one"));
}

// A rank that skipped such a batch would pair its next pass with the other ranks' current pass.
TEST(DdpPass, EndsTheGroupWhenItFailsBeforeItGetsToTheModule) {
  std::string text;
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(3, 1);
    DistributedDataParallel ddp(layer);
    Tensor output = ddp(ones({1, 3}));
    Tensor loss = output.exp();
    if (group.rank() == 1) {
      const HookHandle hook = loss.register_hook([](const Tensor&) -> Tensor { throw ValueError("not this one"); });
      EXPECT_THROW(loss.sum().backward(), ValueError);
      EXPECT_THROW(ddp(ones({1, 3})).sum().backward(), CommError);
    } else {
      text = message_of<CommError>([&] { loss.sum().backward(); });
    }
  });
  EXPECT_THAT(text, HasSubstr("aborted by rank 1: its backward pass failed: not this one"));
}

TEST(DdpPass, EndsTheGroupWhenItCannotBegin) {
  std::string text;
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(3, 1);
    DistributedDataParallel ddp(layer);
    const Tensor loss = ddp(ones({1, 3})).exp().sum();
    loss.backward();
    if (group.rank() == 1) {
      EXPECT_THAT(message_of<AutogradError>([&] { loss.backward(); }), HasSubstr("was freed by an earlier backward()"));
    } else {
      text = message_of<CommError>([&] { ddp(ones({1, 3})).sum().backward(); });
    }
  });
  EXPECT_THAT(text, HasSubstr("aborted by rank 1: its backward pass failed: backward: the graph through "));
}

TEST(DdpPass, EndsTheGroupWhenACommHookThrowsAnErrorOfItsOwn) {
  std::string text;
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(3, 1);
    DistributedDataParallel ddp(layer);
    ddp.register_comm_hook([](ProcessGroup& ranks, const parallel::GradBucket& bucket) -> std::function<void()> {
      ranks.all_reduce(bucket.gradients, parallel::ReduceOp::avg);
      return [&ranks] {
        if (ranks.rank() == 1) {
          throw CommError("of another group", {.fault = CommFault::timeout, .rank = 0});
        }
      };
    });
    const auto train = [&] { ddp(ones({1, 3})).sum().backward(); };
    if (group.rank() == 1) {
      EXPECT_THAT(message_of<CommError>(train), HasSubstr("of another group"));
    } else {
      train();
      text = message_of<CommError>(train);
    }
  });
  EXPECT_THAT(text, HasSubstr("aborted by rank 1: of another group"));
}

TEST(DdpPass, EndsTheGroupWhenACommHookThrowsSomethingElse) {
  std::string text;
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(3, 1);
    DistributedDataParallel ddp(layer);
    ddp.register_comm_hook([](ProcessGroup& ranks, const parallel::GradBucket& bucket) -> std::function<void()> {
      ranks.all_reduce(bucket.gradients, parallel::ReduceOp::avg);
      return [&ranks] {
        if (ranks.rank() == 1) {
          throw 7;
        }
      };
    });
    const auto train = [&] { ddp(ones({1, 3})).sum().backward(); };
    if (group.rank() == 1) {
      EXPECT_THROW(train(), int);
      EXPECT_FALSE(layer.weight.grad().defined());
    } else {
      train();
      text = message_of<CommError>(train);
    }
  });
  EXPECT_THAT(text, HasSubstr("aborted by rank 1: what was thrown is not a std::exception"));
}

struct EitherHead : nn::Module<EitherHead> {
  nn::Linear a = child("a", nn::Linear(2, 1, {.bias = false}));
  nn::Linear b = child("b", nn::Linear(2, 1, {.bias = false}));
  Tensor forward(const Tensor& x, int head) const { return head == 0 ? a(x) : b(x); }
};

TEST(DdpPass, IsTheOnlyOneOfItsWrapper) {
  std::string text;
  as_ranks(2, [&](ProcessGroup& group) {
    EitherHead model;
    DistributedDataParallel ddp(model, {.find_unused_parameters = true});
    const Tensor x = ones({1, 2});
    const Tensor inner = ddp(x, 1).sum();
    const HookHandle hook = model.a.weight.register_hook([&](const Tensor&) {
      inner.backward();
      return Tensor();
    });
    try {
      ddp(x, 0).sum().backward();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      if (group.rank() == 0) {
        text = error.what();
      }
    }
    EXPECT_FALSE(model.a.weight.grad().defined());
  });
  EXPECT_THAT(text, ::testing::AnyOf(HasSubstr("another backward pass through the wrapper is still running"),
                                     HasSubstr("its backward pass failed")));
}

TEST(DdpPass, RunsHooksOnlyOfWhatItGave) {
  as_ranks(2, [](ProcessGroup& group) {
    EitherHead model;
    DistributedDataParallel ddp(model, {.find_unused_parameters = true});
    int calls[2] = {0, 0};
    const HookHandle hooks[] = {model.a.weight.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls[0]; }),
                                model.b.weight.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls[1]; })};
    ddp(ones({1, 2}), 0).sum().backward();
    ddp(ones({1, 2}), 1).sum().backward();  // the first head keeps its gradient
    EXPECT_EQ(calls[0], 1);
    EXPECT_EQ(calls[1], 1);
    ddp(ones({1, 2}), group.rank()).sum().backward();  // each head is used on one rank
    EXPECT_EQ(calls[0], 2);
    EXPECT_EQ(calls[1], 2);
  });
}

// Lanes of two devices reach the buckets in no fixed order.
TEST(DdpPass, ThroughWrappersOnSeveralDevicesReducesInOneOrder) {
  as_ranks(2, [](ProcessGroup& group) {
    const Device own(DeviceType::cpu, group.rank());
    const Device other(DeviceType::cpu, 2 + group.rank());
    nn::Sequential first;
    nn::Sequential second;
    for (int i = 0; i < 4; ++i) {
      first.push_back(nn::Linear(8, 8));
      second.push_back(nn::Linear(8, 8));
    }
    first.to(own);
    second.to(other);
    DistributedDataParallel ddp(first, {.bucket_cap_mb = 1e-6});
    DistributedDataParallel beside(second, {.bucket_cap_mb = 1e-6});
    for (int pass = 0; pass < 30; ++pass) {
      const Tensor x = ones({2, 8}, {.device = own});
      (ddp(x).sum() + beside(x.to(other)).sum().to(own)).backward();
    }
  });
}

TEST(DdpPass, ThatCannotBeginInOneWrapperIsToldToTheOther) {
  std::string text;
  as_ranks(2, [&](ProcessGroup& group) {
    const auto pair = group.new_group({0, 1});
    EitherHead whole;
    nn::Linear layer(2, 1);
    DistributedDataParallel ddp(whole);
    DistributedDataParallel beside(layer, {.process_group = pair.get()});
    const Tensor x = ones({1, 2});
    if (group.rank() == 0) {
      EXPECT_THAT(message_of<AutogradError>([&] { (ddp(x, 0).exp().exp() + beside(x)).sum().backward(); }),
                  HasSubstr("has no gradient of 1 parameter"));
    } else {
      text = message_of<CommError>([&] { beside(x).sum().backward(); });
    }
  });
  EXPECT_THAT(text, HasSubstr("aborted by rank 0: its backward pass failed: DistributedDataParallel: rank 0 has no"));
}

TEST(DdpPass, OfALossThatIsKeptKeepsNoModuleFromBeingWrappedAgain) {
  as_ranks(2, [](ProcessGroup&) {
    nn::Linear layer(3, 1);
    Tensor loss;
    {
      DistributedDataParallel ddp(layer);
      loss = ddp(ones({1, 3})).sum();
      loss.backward();
    }
    DistributedDataParallel again(layer);
    again(ones({1, 3})).sum().backward();
  });
}

TEST(DdpPass, GoesOnWhenItsWrapperIsGone) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(3, 1);
    Tensor loss;
    {
      DistributedDataParallel ddp(layer);
      loss = ddp(row(group.rank())).sum();
    }
    loss.backward();
    EXPECT_EQ(layer.weight.grad().to("cpu:0").to_vector<float>(), std::vector<float>(3, 0.5F));
  });
}

TEST(DdpNoSync, IsOneForAllCopiesOfAWrapper) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(3, 1);
    DistributedDataParallel ddp(layer);
    auto copy = [&] {
      const auto local = ddp.no_sync();
      return ddp;
    }();
    copy(row(group.rank())).sum().backward();
    EXPECT_EQ(layer.weight.grad().to("cpu:0").to_vector<float>(), std::vector<float>(3, 0.5F));
  });
}

struct Headed : nn::Module<Headed> {
  nn::Linear body = child("body", nn::Linear(2, 2));
  nn::Linear head = child("head", nn::Linear(2, 2));
  Tensor forward(const Tensor& x) const { return head(body(x)); }
};

TEST(DdpErrors, LayersThatWereReplacedSinceTheyWereWrapped) {
  as_ranks(1, [](ProcessGroup&) {
    for (const bool frozen : {false, true}) {
      Headed model;
      model.head.requires_grad_(!frozen);
      DistributedDataParallel ddp(model, {.find_unused_parameters = true});
      model.head = nn::Linear(2, 2);
      EXPECT_EQ(message_of<ConfigError>([&] { ddp(ones({1, 2})); }),
                "DistributedDataParallel: parameter 'head.weight' is another one than when the module was wrapped; "
                "replace layers first, then wrap the module");
    }
  });
}

TEST(DdpErrors, AWrapperOnSomeRanksOnlyIsToldToAll) {
  std::vector<std::string> texts(2);
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(2, 4);
    const auto own = group.new_group({1});
    std::unique_ptr<DistributedDataParallel<nn::Linear>> before;
    if (group.rank() == 1) {
      before = std::make_unique<DistributedDataParallel<nn::Linear>>(
          layer, parallel::DistributedOptions{.process_group = own.get()});
    }
    texts[static_cast<std::size_t>(group.rank())] =
        message_of<ConfigError>([&] { DistributedDataParallel ddp(layer); });
  });
  EXPECT_THAT(texts[0], HasSubstr("rank 1 has parameter 'weight' in another DistributedDataParallel already"));
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(DdpErrors, OptionsThatDiffer) {
  std::vector<std::string> texts(2);
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(2, 4);
    texts[static_cast<std::size_t>(group.rank())] = message_of<ConfigError>(
        [&] { DistributedDataParallel ddp(layer, {.find_unused_parameters = group.rank() == 1}); });
  });
  EXPECT_THAT(
      texts[0],
      HasSubstr(
          "Rank 0 has bucket_cap_mb = default, find_unused_parameters = false, broadcast_buffers = true, init_sync = "
          "true, shard = none; rank 1 has bucket_cap_mb = default, find_unused_parameters = true, "));
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(DdpErrors, AGroupThatARankIsNotIn) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(2, 4);
    EXPECT_EQ(message_of<ConfigError>([&] { DistributedDataParallel ddp(layer, {.process_group = nullptr}); }),
              "DistributedDataParallel: process_group is null, as for a rank that is not in a sub-group; let only its "
              "members wrap the module, or leave it out for the default group");
  });
}

TEST(DdpBuckets, OfAnyLimitAreAtLeastOne) {
  as_ranks(2, [](ProcessGroup&) {
    for (const double most : {std::numeric_limits<double>::infinity(), 1e300}) {
      Mlp model = seeded<Mlp>();
      DistributedDataParallel ddp(model, {.bucket_cap_mb = most});
      std::size_t buckets = 0;
      ddp.register_comm_hook([&](ProcessGroup&, const parallel::GradBucket& bucket) {
        buckets = bucket.count;
        return std::function<void()>{};
      });
      const Batch batch = batch_of(2);
      nn::cross_entropy(ddp(batch.x), batch.y).backward();
      EXPECT_EQ(buckets, 1U);
    }
  });
}

}  // namespace
}  // namespace tandem::test

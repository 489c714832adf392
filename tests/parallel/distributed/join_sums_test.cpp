#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/ranks.h"

// A Join with gradients that exist already, or that do not come through the module.

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::Join;
using parallel::ProcessGroup;
using ::testing::HasSubstr;

/// The gradient of a layer with one weight, which equals the layer's input.
float gradient_of(const nn::Linear& layer) { return layer.weight.grad().to("cpu:0").to(DType::f32).item<float>(); }

Tensor one(double value) { return full({1, 1}, value); }

TEST(JoinSums, AddToReducedGradientsThatEndedRanksHaveToo) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1, {.bias = false});
    DistributedDataParallel ddp(layer);
    Join join(ddp, {.reduction = Reduction::sum});
    ddp(one(1 + group.rank())).sum().backward();
    if (group.rank() == 0) {
      ddp(one(3)).sum().backward();
      EXPECT_EQ(gradient_of(layer), 3);  // (1 + 2) / 2 + (3 + 0) / 2
      ddp(one(1)).sum().backward();
      layer.zero_grad();
      ddp(one(5)).sum().backward();
      EXPECT_EQ(gradient_of(layer), 2.5F);
    }
    join.finish([] {});
    EXPECT_EQ(gradient_of(layer), 2.5F);
  });
}

TEST(JoinSums, NeedWhatWasReducedBeforeOnAllRanks) {
  std::vector<std::string> texts(2);
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(1, 1, {.bias = false});
    DistributedDataParallel ddp(layer);
    try {
      Join join(ddp, {.reduction = Reduction::sum});
      ddp(one(1)).sum().backward();
      if (group.rank() == 0) {
        ddp(one(3)).sum().backward();
        ddp(one(3)).sum().backward();
      }
      join.finish([&] { layer.zero_grad(); });
    } catch (const Error& error) {
      texts[static_cast<std::size_t>(group.rank())] = error.what();
    }
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("of other parameters than have one here in finish()"));
  }
}

// Both halves of the mean fit into 16 bits, but n * W / N times one of them does not.
TEST(JoinSums, StayWithinSixteenBits) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1, {.bias = false});
    layer.to(DType::f16);
    DistributedDataParallel ddp(layer);
    Join join(ddp);
    if (group.rank() == 0) {
      ddp(full({1, 1}, 40000, {.dtype = DType::f16})).mean().backward();
    }
    join.finish([] {});
    EXPECT_EQ(gradient_of(layer), 40000);
  });
}

struct Tempered : nn::Module<Tempered> {
  nn::Linear layer = child("layer", nn::Linear(1, 1, {.bias = false}));
  Tensor temperature = parameter("temperature", full({1}, 2.0));
  Tensor forward(const Tensor& x) const { return layer(x); }
};

// The loss's own gradient arrives before the module's.
TEST(JoinSums, CountAParameterThatTheLossUsesItselfOnce) {
  as_ranks(2, [](ProcessGroup& group) {
    Tempered model;
    DistributedDataParallel ddp(model);
    Join join(ddp);
    const auto loss_of = [&](std::int64_t rows) {
      const Tensor output = ddp(ones({rows, 1}));
      return output.mean() + model.temperature.sum();
    };
    {
      const auto local = ddp.no_sync();
      loss_of(4).backward();
    }
    loss_of(group.rank() == 0 ? 2 : 1).backward();
    EXPECT_NEAR(model.temperature.grad().to("cpu:0").item<float>(), 2, 1e-6);
    EXPECT_NEAR(gradient_of(model.layer), 2, 1e-6);
    join.finish([] {});
  });
}

TEST(JoinErrors, GradientsThatNoSyncLeftBeforeIt) {
  for (const bool everywhere : {false, true}) {
    std::vector<std::string> texts(2);
    as_ranks(2, [&](ProcessGroup& group) {
      nn::Linear layer(1, 1, {.bias = false});
      DistributedDataParallel ddp(layer);
      if (everywhere || group.rank() == 1) {
        const auto local = ddp.no_sync();
        ddp(one(1 + group.rank())).sum().backward();
      }
      texts[static_cast<std::size_t>(group.rank())] = message_of<ConfigError>([&] { Join join(ddp); });
      ddp(one(3)).sum().backward();
      EXPECT_EQ(gradient_of(layer), everywhere ? 4.5F : 4.0F);
      Join join(ddp);
      join.finish([] {});
    });
    EXPECT_EQ(texts[1], fmt::format("Join: on {} there are gradients that were not reduced, from no_sync() or from "
                                    "before wrapping, and it is not known how many samples they are of; call "
                                    "zero_grad() before, or reduce them",
                                    everywhere ? "ranks 0, 1" : "rank 1"));
    EXPECT_EQ(texts[0], texts[1]);
  }
}

// The loop resets one layer and finish() only gets the step: an ended rank would add its old gradient of that layer.
TEST(JoinSums, NeedGradientsOfTheSameParametersOnAllRanks) {
  std::vector<std::string> texts(2);
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Sequential model{nn::Linear(1, 1), nn::Linear(1, 1)};
    DistributedDataParallel ddp(model);
    try {
      Join join(ddp, {.reduction = Reduction::sum});
      for (int step = 0; step < (group.rank() == 0 ? 3 : 1); ++step) {
        model.parameters().front().zero_grad();
        ddp(one(1)).sum().backward();
      }
      join.finish([] {});
    } catch (const Error& error) {
      texts[static_cast<std::size_t>(group.rank())] = error.what();
    }
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("of other parameters than have one here in finish()"));
  }
}

// Models a function that trains one epoch and first resets the gradients left by an earlier call.
TEST(JoinGradients, FromBeforeWrappingMayBeResetInTheLoop) {
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(1, 1, {.bias = false});
    for (int epoch = 0; epoch < 2; ++epoch) {
      DistributedDataParallel ddp(layer);
      Join join(ddp);
      for (int step = 0; step < 2 - group.rank(); ++step) {
        layer.zero_grad();
        ddp(one(1 + group.rank())).mean().backward();
      }
      join.finish([] {});
      EXPECT_EQ(gradient_of(layer), 1);
    }
  });
}

TEST(JoinErrors, GradientsFromBeforeWrappingThatAreAddedTo) {
  for (const bool local : {false, true}) {
    std::vector<std::string> texts(2);
    as_ranks(2, [&](ProcessGroup& group) {
      nn::Linear layer(1, 1, {.bias = false});
      layer(one(1)).sum().backward();
      DistributedDataParallel ddp(layer);
      try {
        Join join(ddp);
        const auto pass = [&] { ddp(one(1)).sum().backward(); };
        if (local) {
          const auto scope = ddp.no_sync();
          pass();
        } else {
          pass();
        }
        join.finish([] {});
      } catch (const Error& error) {
        texts[static_cast<std::size_t>(group.rank())] = error.what();
      }
    });
    for (const std::string& text : texts) {
      EXPECT_THAT(text, HasSubstr(local ? "there are gradients from before wrapping already, where an accumulation in "
                                          "no_sync() begins"
                                        : "on ranks 0, 1 there are gradients that were not reduced, from no_sync() or "
                                          "from before wrapping"));
    }
  }
}

TEST(JoinErrors, OverAnotherGroupThanOneThatHasNotFinished) {
  as_ranks(2, [](ProcessGroup& group) {
    const auto pair = group.new_group({0, 1});
    nn::Linear first(1, 1);
    nn::Linear second(1, 1);
    DistributedDataParallel one_ddp(first);
    nn::Linear third(1, 1);
    DistributedDataParallel second_ddp(second);
    DistributedDataParallel other_ddp(third, {.process_group = pair.get()});
    Join join(one_ddp);
    {
      Join same(second_ddp);
      same.finish([] {});
    }
    EXPECT_THAT(message_of<ConfigError>([&] { Join other(other_ddp); }),
                HasSubstr("in a Join over another process group"));
    EXPECT_THAT(message_of<CommError>([&] { pair->barrier(); }), HasSubstr("in a Join over another process group"))
        << "ranks that are in no other Join hear of it";
    join.finish([] {});
  });
}

TEST(JoinErrors, AFinishWhoseGroupIsGone) {
  auto groups = parallel::local_groups(1);
  nn::Linear layer(1, 1);
  DistributedDataParallel ddp(layer, {.process_group = groups.front().get()});
  Join join(ddp);
  groups.clear();
  EXPECT_THAT(message_of<ConfigError>([&] { join.finish([] {}); }), HasSubstr("its process group is gone"));
}

TEST(JoinErrors, AStepThatFailsAndIsCaughtIsTheReasonThatAllAreTold) {
  std::string text;
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    Join join(ddp);
    if (group.rank() == 0) {
      EXPECT_THROW(join.finish([] { throw ValueError("no step today"); }), ValueError);
      return;
    }
    text = message_of<CommError>([&] {
      for (int step = 0; step < 3; ++step) {
        ddp(ones({1, 1})).sum().backward();
      }
      join.finish([] {});
    });
    EXPECT_THROW(join.finish([] {}), CommError);
  });
  EXPECT_THAT(text, HasSubstr("aborted by rank 0: its Join's finish() failed: no step today"));
}

}  // namespace
}  // namespace tandem::test

#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::Join;
using parallel::ProcessGroup;
using testing::AllOf;
using testing::HasSubstr;

/// The message of the error that each rank's body throws; empty if the rank throws nothing.
std::vector<std::string> messages(int ranks, const std::function<void(ProcessGroup&)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  as_ranks(ranks, [&](ProcessGroup& group) {
    try {
      body(group);
    } catch (const std::exception& error) {
      texts[static_cast<std::size_t>(group.rank())] = error.what();
    }
  });
  return texts;
}

void step(DistributedDataParallel<nn::Linear>& ddp, optim::SGD& sgd) {
  sgd.zero_grad();
  ddp(ones({2, 1})).sum().backward();
  sgd.step();
}

TEST(JoinErrors, AForgottenFinishEndsTheOthersAtOnce) {
  std::string warning;
  set_warning_handler([&](const std::string& text) { warning = text; });
  const auto texts = messages(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    optim::SGD sgd(layer.parameters(), {.lr = 0.1});
    Join join(ddp);
    step(ddp, sgd);
    if (group.rank() == 1) {
      step(ddp, sgd);
      join.finish([&] { sgd.step(); });
    }
  });
  set_warning_handler({});
  const std::string text =
      "its Join was destroyed without finish(), so that ranks with more input would wait for it for ever; call "
      "join.finish([&] { optimizer.step(); }) after the loop, and also where the loop is left early";
  EXPECT_THAT(texts[1], HasSubstr("aborted by rank 0: " + text));
  EXPECT_EQ(warning, "Join: " + text);
}

TEST(JoinErrors, AnExceptionInTheScopeEndsTheOthers) {
  const auto texts = messages(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    optim::SGD sgd(layer.parameters(), {.lr = 0.1});
    Join join(ddp);
    if (group.rank() == 1) {
      throw std::runtime_error("no such file");
    }
    step(ddp, sgd);
  });
  EXPECT_THAT(texts[0], HasSubstr("aborted by rank 1: an exception left the scope of its Join"));
  EXPECT_THAT(texts[1], HasSubstr("no such file"));
}

TEST(JoinErrors, AStepThatFailsEndsTheOthers) {
  const auto texts = messages(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    optim::SGD sgd(layer.parameters(), {.lr = 0.1});
    Join join(ddp);
    for (int i = 0; i < 3 && group.rank() == 0; ++i) {
      step(ddp, sgd);
    }
    join.finish([] { throw std::runtime_error("no space"); });
  });
  EXPECT_THAT(texts[0], HasSubstr("aborted by rank 1: its Join's finish() failed: no space"));
  EXPECT_THAT(texts[1], HasSubstr("no space"));
}

TEST(JoinErrors, RanksWithoutAJoin) {
  const auto texts = messages(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    optim::SGD sgd(layer.parameters(), {.lr = 0.1});
    if (group.rank() == 0) {
      Join join(ddp);
      step(ddp, sgd);
      join.finish([&] { sgd.step(); });
    } else {
      step(ddp, sgd);
    }
  });
  EXPECT_THAT(texts[0], AllOf(HasSubstr("Join: all ranks must be in one, with the same wrappers"),
                              HasSubstr("rank 1: "), HasSubstr("all_reduce f32")));
  EXPECT_THAT(texts[1], HasSubstr("its ranks made different calls"));
}

TEST(JoinErrors, ARankThatLeavesOneForAPlainLoop) {
  const auto texts = messages(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    optim::SGD sgd(layer.parameters(), {.lr = 0.1});
    Join join(ddp);
    if (group.rank() == 0) {
      group.all_reduce(ones({3}));
    }
    join.finish([&] { sgd.step(); });
  });
  EXPECT_THAT(texts[0], HasSubstr("all_reduce f32 [3]"));
  EXPECT_THAT(texts[1], AllOf(HasSubstr("ranks whose input has ended take part in nothing else"),
                              HasSubstr("all_reduce f32 [3]")));
}

TEST(JoinErrors, AFinishThatDoesNotStep) {
  const auto texts = messages(3, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    optim::SGD sgd(layer.parameters(), {.lr = 0.1});
    Join join(ddp);
    for (int i = 0; i < (group.rank() == 1 ? 1 : 3); ++i) {
      step(ddp, sgd);
    }
    join.finish([] {});
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("Join: since the last reduced pass parameters were changed on ranks 0, 2 and not on "
                                "rank 1; the input has ended on rank 1. What the loop does between two backward passes "
                                "must be what finish() is given: join.finish([&] { optimizer.step(); })"));
  }
}

TEST(JoinErrors, AFinishThatStepsMoreOften) {
  const auto texts = messages(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    optim::SGD sgd(layer.parameters(), {.lr = 0.1});
    Join join(ddp);
    for (int i = 0; i < 2 && group.rank() == 0; ++i) {
      ddp(ones({1, 1})).sum().backward();
    }
    join.finish([&] { sgd.step(); });
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("were changed on rank 1 and not on rank 0; the input has ended on rank 1"));
  }
}

TEST(JoinErrors, WrappersInAnotherOrder) {
  const auto texts = messages(2, [](ProcessGroup& group) {
    nn::Linear a(1, 1);
    nn::Linear b(1, 1);
    DistributedDataParallel first(a);
    DistributedDataParallel second(b);
    Join join(std::tie(first, second));
    (group.rank() == 0 ? first : second)(ones({1, 1})).sum().backward();
    join.finish([] {}, [] {});
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("Join: rank 0 reduces gradients of wrapper 0 and rank 1 those of wrapper 1"));
  }
}

TEST(JoinErrors, OptionsThatDiffer) {
  const auto texts = messages(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    Join join(ddp, {.reduction = group.rank() == 0 ? Reduction::mean : Reduction::sum});
    join.finish([] {});
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("Join: the ranks have different options"));
  }
}

TEST(JoinErrors, AnUnusedParameterIsNamed) {
  struct Half : nn::Module<Half> {
    nn::Linear used = child("used", nn::Linear(1, 1));
    nn::Linear unused = child("unused", nn::Linear(1, 1));
    Tensor forward(const Tensor& x) const { return used(x); }
  };
  const auto texts = messages(2, [](ProcessGroup& group) {
    Half model;
    DistributedDataParallel ddp(model);
    Join join(ddp);
    if (group.rank() == 1) {
      ddp(ones({1, 1})).sum().backward();
    }
    join.finish([] {});
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("rank 1 has no gradient of 2 parameters in this backward pass: 'unused.bias', "
                                "'unused.weight'"));
  }
}

TEST(JoinErrors, BatchesWhoseSamplesCannotBeCounted) {
  as_ranks(1, [](ProcessGroup&) {
    struct Flexible : nn::Module<Flexible> {
      nn::Linear layer = child("layer", nn::Linear(1, 1));
      Tensor forward(const Tensor& x, const Tensor& scale) const { return layer(x) * scale; }
    };
    Flexible model;
    DistributedDataParallel ddp(model);
    Join join(ddp);
    EXPECT_EQ(message_of<ConfigError>([&] { ddp(ones({3, 1}), ones({1})); }),
              "Join: how many samples has this batch? The inputs have 3 and 1 in dimension 0; say it before each "
              "forward pass: join.samples(count)");
    EXPECT_EQ(message_of<ConfigError>([&] { ddp(ones({}), ones({})); }),
              "Join: how many samples has this batch? No input of the module has a dimension 0; say it before each "
              "forward pass: join.samples(count)");
    EXPECT_EQ(message_of<ConfigError>([&] { ddp(ones({0, 1}), ones({0, 1})); }),
              "Join: the batch has no samples, of which there is no mean; leave it out: ranks need not have as many "
              "batches");
    EXPECT_EQ(message_of<ConfigError>([&] { join.samples(0); }),
              "Join::samples: got 0; expected more than 0: a batch without samples is left out");
    {
      const NoGradGuard no_grad;  // reduces no gradients
      ddp(ones({0, 1}), ones({}));
    }
    join.finish([] {});
  });
}

TEST(JoinErrors, PassesThatLeaveTheScope) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    const Tensor before = ddp(ones({1, 1})).sum();
    Join join(ddp);
    EXPECT_THAT(message_of<AutogradError>([&] { before.backward(); }),
                HasSubstr("the forward pass was outside of a Join, and its backward pass in it"));
    const Tensor within = ddp(ones({1, 1})).sum();
    join.finish([] {});
    EXPECT_THAT(message_of<AutogradError>([&] { within.backward(); }),
                HasSubstr("the forward pass was in a Join, and its backward pass after its finish()"));
    EXPECT_FALSE(layer.weight.grad().defined());
  });
}

TEST(JoinErrors, ForwardPassesOfDifferentSizesInOneBackward) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    Join join(ddp);
    (ddp(ones({2, 1})).mean() + ddp(ones({2, 1})).mean()).backward();
    EXPECT_THAT(message_of<AutogradError>([&] { (ddp(ones({2, 1})).mean() + ddp(ones({3, 1})).mean()).backward(); }),
                HasSubstr("in a Join one backward pass goes through forward passes of "));
    join.samples(5);
    const Tensor first = ddp(ones({2, 1}));
    join.samples(5);
    cat({first, ddp(ones({3, 1}))}).mean().backward();
    join.finish([] {});
  });
}

TEST(JoinErrors, AnAccumulationOnTopOfReducedGradients) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    Join join(ddp);
    ddp(ones({2, 1})).mean().backward();
    {
      const auto local = ddp.no_sync();
      EXPECT_THAT(message_of<AutogradError>([&] { ddp(ones({2, 1})).mean().backward(); }),
                  HasSubstr("call zero_grad() after each step"));
    }
    join.finish([] {});
  });
}

TEST(JoinErrors, WhatCannotBeMeant) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    EXPECT_THAT(message_of<ConfigError>([&] { Join join(ddp, {.reduction = Reduction::none}); }),
                HasSubstr("reduction is none"));
    EXPECT_THAT(message_of<ConfigError>([&] { Join join(ddp, {.batch_dim = -1}); }), HasSubstr("batch_dim is -1"));
    Join join(ddp);
    EXPECT_THAT(message_of<ConfigError>([&] { Join again(ddp); }), HasSubstr("the wrapper is in a Join already"));
    EXPECT_EQ(message_of<ConfigError>([&] { join.finish(); }),
              "Join::finish: got 0 functions for 1 wrappers; expected one for each, in their order");
    join.finish([] {});
    EXPECT_EQ(message_of<ConfigError>([&] { join.finish([] {}); }),
              "Join::finish: called a second time; make a Join for each pass over the data");
    EXPECT_EQ(message_of<ConfigError>([&] { join.samples(1); }), "Join::samples: called after finish()");
    Join next(ddp);
    next.finish([] {});
    nn::Linear other(1, 1);
    const auto own = std::move(parallel::local_groups(1).front());
    DistributedDataParallel elsewhere(other, {.process_group = own.get()});
    EXPECT_THAT(message_of<ConfigError>([&] { Join both(std::tie(ddp, elsewhere)); }),
                HasSubstr("different process groups"));
  });
}

// The last pass of finish(), with the gradients left by no_sync(), would begin inside another pass.
TEST(JoinErrors, AFinishWithinABackwardPassOfItsWrapper) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    Join join(ddp);
    const auto local = ddp.no_sync();
    ddp(ones({1, 1})).sum().backward();
    Tensor output = ddp(ones({1, 1}));
    const HookHandle hook = output.register_hook([&](const Tensor&) {
      join.finish([] {});
      return Tensor();
    });
    EXPECT_THAT(message_of<AutogradError>([&] { output.sum().backward(); }),
                HasSubstr("another backward pass through the wrapper is still running"));
  });
}

}  // namespace
}  // namespace tandem::test

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/ranks.h"
#include "support/warnings.h"

// Gradients that exist when a pass begins: left by no_sync(), or reduced before.

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;

float grad_of(const nn::Linear& layer) { return layer.weight.grad().to("cpu:0").item<float>(); }

// Scopes held one after another in a unique_ptr: each one begins before its predecessor ends.
TEST(DdpNoSync, LastsUntilTheLastOfScopesThatDoNotNestEnds) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    const float rank = static_cast<float>(group.rank());
    const auto gradient = [&] {
      layer.zero_grad();
      ddp(full({1, 1}, rank)).sum().backward();
      return grad_of(layer);
    };
    using NoSync = DistributedDataParallel<nn::Linear>::NoSync;
    std::unique_ptr<NoSync> first(new NoSync(ddp.no_sync()));
    std::unique_ptr<NoSync> second(new NoSync(ddp.no_sync()));
    first.reset();
    EXPECT_EQ(gradient(), rank) << "the second lives";
    second.reset();
    EXPECT_EQ(gradient(), 0.5F);
  });
}

// The optimiser sees gradients of one rank. A step after the reduced pass is what is meant, and says nothing.
TEST(DdpNoSync, AStepOnLocalGradientsIsToldOnce) {
  Warnings warnings;
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    optim::SGD sgd(layer.parameters(), {.lr = 0.1});
    const auto pass = [&] { ddp(full({1, 1}, 1.0 + group.rank())).sum().backward(); };
    for (int i = 0; i < 3; ++i) {
      {
        const auto local = ddp.no_sync();
        pass();
      }
      pass();
      sgd.step();
      sgd.zero_grad();
    }
    if (group.rank() == 0) {
      return;
    }
    const auto local = ddp.no_sync();
    for (int i = 0; i < 3; ++i) {
      pass();
      sgd.step();
      sgd.zero_grad();
    }
  });
  ASSERT_EQ(warnings.texts().size(), 1U);
  EXPECT_EQ(
      warnings.texts()[0],
      "DistributedDataParallel #0: parameters of rank 1 have changed after a backward pass in no_sync(), whose "
      "gradients are its own: the ranks' parameters drift apart. optimizer.step() belongs after the backward pass "
      "outside of no_sync(), which reduces all of them");
}

struct EitherLine : nn::Module<EitherLine> {
  nn::Linear a = child("a", nn::Linear(1, 1, {.bias = false}));
  nn::Linear b = child("b", nn::Linear(1, 1, {.bias = false}));
  Tensor forward(const Tensor& x, int head) const { return head == 0 ? a(x) : b(x); }
};

// The mean of six or seven equal numbers need not be that number.
TEST(DdpKept, GradientsOfAParameterThatNobodyUsesKeepTheirBits) {
  for (const int ranks : {6, 7}) {
    as_ranks(ranks, [](ProcessGroup&) {
      EitherLine model;
      DistributedDataParallel ddp(model, {.find_unused_parameters = true});
      for (const double x : {0.1, 0.2, 0.3, 0.7, 1.1}) {
        model.zero_grad();
        ddp(full({1, 1}, x), 0).sum().backward();
        const float before = grad_of(model.a);
        for (int pass = 0; pass < 3; ++pass) {
          model.b.zero_grad();
          ddp(full({1, 1}, x), 1).sum().backward();
          EXPECT_EQ(grad_of(model.a), before);
        }
        EXPECT_NEAR(grad_of(model.b), x, 1e-6);
      }
    });
  }
}

// In that pass the gradients change while they are reduced with the rest of their bucket.
TEST(DdpKept, GradientsAreNotForAGraphOfTheSamePass) {
  as_ranks(2, [](ProcessGroup&) {
    EitherLine model;
    DistributedDataParallel ddp(model, {.find_unused_parameters = true});
    ddp(full({1, 1}, 3.0), 0).sum().backward();
    const Tensor w = full({1, 1}, 2.0, {.requires_grad = true});
    const Tensor loss = ddp(full({1, 1}, 1.0), 1).sum() + (w * model.a.weight.grad()).sum();
    EXPECT_NE(message_of<AutogradError>([&] { loss.backward(); }).find("changed in place"), std::string::npos);
  });
}

TEST(DdpUnused, AWarningSaysThatNothingIs) {
  enum Case { all_used, one_lacks_some, one_was_local };
  for (const Case now : {all_used, one_lacks_some, one_was_local}) {
    std::vector<std::string> warnings;
    set_warning_handler([&](const std::string& text) { warnings.push_back(text); });  // warnings of rank 0 only
    as_ranks(2, [&](ProcessGroup& group) {
      EitherLine model;
      DistributedDataParallel ddp(model, {.find_unused_parameters = true});
      if (now == one_was_local) {
        const auto local = ddp.no_sync();
        ddp(full({1, 1}, 1.0), 1).sum().backward();
      }
      for (int pass = 0; pass < 2; ++pass) {
        Tensor loss = ddp(full({1, 1}, 1.0), 0).sum();
        if (now == all_used || (now == one_lacks_some && group.rank() == 1)) {
          loss = loss + ddp(full({1, 1}, 1.0), 1).sum();
        }
        loss.backward();
      }
    });
    set_warning_handler({});
    ASSERT_EQ(warnings.size(), now == all_used ? 1U : 0U);
    if (now == all_used) {
      EXPECT_NE(warnings[0].find("find_unused_parameters was given, and in the first backward pass"),
                std::string::npos);
    }
  }
}

// The gradients are not written, so graphs that saved them stay valid.
TEST(DdpKept, GradientsMayBeSavedByAGraph) {
  as_ranks(2, [](ProcessGroup&) {
    EitherLine model;
    DistributedDataParallel ddp(model, {.find_unused_parameters = true});
    ddp(full({1, 1}, 3.0), 0).sum().backward();
    const Tensor w = full({1, 1}, 2.0, {.requires_grad = true});
    const Tensor loss = (w * model.a.weight.grad()).sum();
    ddp(full({1, 1}, 1.0), 1).sum().backward();
    loss.backward();
    EXPECT_EQ(w.grad().to("cpu:0").item<float>(), 3.0F);
  });
}

// Otherwise the optimiser would change the parameter on this rank only.
TEST(DdpKept, GradientsThatSomeRanksHaveAreTheMeanOnAll) {
  as_ranks(3, [](ProcessGroup& group) {
    EitherLine model;
    if (group.rank() == 0) {
      model(full({1, 1}, 3.0), 0).sum().backward();  // before the module is wrapped
    }
    DistributedDataParallel ddp(model, {.find_unused_parameters = true});
    ddp(full({1, 1}, 1.0), 1).sum().backward();
    EXPECT_NEAR(grad_of(model.a), 1, 1e-6);
    if (group.rank() == 2) {
      model.a.zero_grad();
    }
    model.b.zero_grad();
    ddp(full({1, 1}, 1.0), 1).sum().backward();
    EXPECT_NEAR(grad_of(model.a), 2.0 / 3, 1e-6);
    EXPECT_NEAR(grad_of(model.b), 1, 1e-6);
  });
}

TEST(DdpKept, GradientsAreNotGivenToHooksAgain) {
  for (const int ranks : {1, 2}) {
    as_ranks(ranks, [ranks](ProcessGroup& group) {
      EitherLine model;
      DistributedDataParallel ddp(model, {.find_unused_parameters = true});
      ddp.register_comm_hook([](ProcessGroup& among, const parallel::GradBucket& bucket) -> std::function<void()> {
        among.all_reduce(bucket.gradients, parallel::ReduceOp::sum);
        return [gradients = bucket.gradients]() mutable { gradients.mul_(2.0); };
      });
      const Tensor x = ones({1, 1});
      ddp(x, 0).sum().backward();
      for (int pass = 0; pass < 3; ++pass) {
        model.b.zero_grad();
        ddp(x, 1).sum().backward();
        EXPECT_EQ(grad_of(model.a), 2.0F * static_cast<float>(ranks));
        EXPECT_EQ(grad_of(model.b), 2.0F * static_cast<float>(ranks));
      }
      ddp(x, group.rank()).sum().backward();  // now one rank adds to the gradient
      EXPECT_EQ(grad_of(model.a), 2.0F * (static_cast<float>(ranks * 2 * ranks) + 1));
    });
  }
}

TEST(DdpKept, GradientsThatNoSyncLeftAreReducedThoughNobodyAddsToThem) {
  as_ranks(2, [](ProcessGroup& group) {
    EitherLine model;
    DistributedDataParallel ddp(model, {.find_unused_parameters = true});
    int hooks = 0;
    const HookHandle hook = model.a.weight.register_post_accumulate_grad_hook([&](const Tensor&) { ++hooks; });
    if (group.rank() == 0) {
      const auto local = ddp.no_sync();
      ddp(full({1, 1}, 3.0), 0).sum().backward();
    }
    const int before = hooks;
    ddp(ones({1, 1}), 1).sum().backward();
    EXPECT_EQ(grad_of(model.a), 1.5F);
    EXPECT_EQ(hooks, before + 1) << "with the mean";
    ddp(ones({1, 1}), 1).sum().backward();
    EXPECT_EQ(grad_of(model.a), 1.5F);
    EXPECT_EQ(hooks, before + 1);
  });
}

TEST(DdpKept, GradientsStayOnRanksWhoseInputHasEnded) {
  as_ranks(3, [](ProcessGroup& group) {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
      EitherLine model;
      DistributedDataParallel ddp(model, {.find_unused_parameters = true});
      parallel::Join join(ddp, {.reduction = reduction});
      ddp(full({1, 1}, 0.1), 0).sum().backward();
      const float before = grad_of(model.a);
      for (int pass = 0; pass < 3 && group.rank() == 0; ++pass) {
        ddp(full({1, 1}, 0.1), 1).sum().backward();
      }
      join.finish([] {});
      EXPECT_EQ(grad_of(model.a), before);
    }
  });
}

TEST(DdpKept, GradientsAreForgottenByRanksWhoseInputHasEndedWhereTheOthersForgetThem) {
  as_ranks(2, [](ProcessGroup& group) {
    EitherLine model;
    DistributedDataParallel ddp(model, {.find_unused_parameters = true});
    parallel::Join join(ddp);
    ddp(ones({1, 1}), 0).sum().backward();
    if (group.rank() == 0) {
      model.zero_grad();
      ddp(ones({1, 1}), 1).sum().backward();
    }
    join.finish([] {});
    EXPECT_FALSE(model.a.weight.grad().defined());
    EXPECT_EQ(grad_of(model.b), 1);
  });
}

}  // namespace
}  // namespace tandem::test

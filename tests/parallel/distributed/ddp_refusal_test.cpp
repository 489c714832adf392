#include <cstddef>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"

// Backward passes that do not begin, or that no wrapper notices.

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;

// A rank that skipped such a batch would pair its next pass with the other ranks' current pass.
TEST(DdpErrors, ABackwardThatIsRefusedBeforeItBeginsIsToldToAll) {
  const std::function<void(const Tensor&)> refused[] = {
      [](const Tensor& output) { output.backward(ones({4, 2})); },
      [](const Tensor& output) { output.backward(); },
      [](const Tensor& output) {
        Tensor row = output.narrow(0, 0, 1);
        {
          const NoGradGuard no_grad;
          row.fill_(1.0);
        }
        output.backward(ones({3, 2}));
      },
  };
  const char* const reasons[] = {"the gradient is [4, 2]", "is not a scalar", "was changed in place"};
  for (std::size_t i = 0; i < std::size(refused); ++i) {
    std::string text;
    as_ranks(2, [&](ProcessGroup& group) {
      nn::Linear layer(2, 2);
      DistributedDataParallel ddp(layer);
      if (group.rank() == 1) {
        EXPECT_THROW(refused[i](ddp(ones({3, 2}))), Error);
      } else {
        text = message_of<CommError>([&] { ddp(ones({4, 2})).sum().backward(); });
      }
    });
    EXPECT_NE(text.find("aborted by rank 1: its backward pass failed: backward: "), std::string::npos) << text;
    EXPECT_NE(text.find(reasons[i]), std::string::npos) << text;
  }
}

// Replays of the captured pass would produce gradients without the wrapper's knowledge.
struct TwoHeads : nn::Module<TwoHeads> {
  nn::Linear left = child("left", nn::Linear(2, 1));
  nn::Linear right = child("right", nn::Linear(2, 1));
  std::pair<Tensor, Tensor> forward(const Tensor& x) const { return {left(x), right(x)}; }
};

// The inner pass would wait forever for the pass that contains it. (If both reach one parameter, the engine refuses.)
TEST(DdpErrors, ACommHookThatRunsABackwardPass) {
  using Wrapper = DistributedDataParallel<TwoHeads>;
  const std::function<Tensor(Wrapper&)> within[] = {
      [](Wrapper& ddp) { return ddp(ones({1, 2})).second; },
      [](Wrapper& ddp) { return ddp.module()(ones({1, 2})).second; },
  };
  for (const auto& output : within) {
    for (const bool at_the_end : {false, true}) {
      as_ranks(2, [&](ProcessGroup&) {
        TwoHeads model;
        Wrapper ddp(model, {.find_unused_parameters = true});
        ddp.register_comm_hook([&](ProcessGroup&, const parallel::GradBucket&) -> std::function<void()> {
          const auto backward = [&] {
            const GradModeScope recording(true);
            output(ddp).sum().backward();
          };
          if (at_the_end) {
            return backward;
          }
          backward();
          return {};
        });
        const Tensor loss = ddp(ones({3, 2})).first.sum();
        EXPECT_EQ(message_of<AutogradError>([&] { loss.backward(); }),
                  "DistributedDataParallel: a backward pass through the wrapper or its parameters began while a comm "
                  "hook of another one runs; a hook may reduce, and no more");
        for (const Tensor& parameter : model.parameters()) {
          EXPECT_FALSE(parameter.grad().defined());
        }
      });
    }
  }
}

TEST(DdpErrors, ACommHookThatCatchesTheRefusalOfABackwardPassKeepsItsGroup) {
  as_ranks(2, [&](ProcessGroup& group) {
    TwoHeads model;
    DistributedDataParallel<TwoHeads> ddp(model, {.find_unused_parameters = true});
    ddp.register_comm_hook([&](ProcessGroup& own, const parallel::GradBucket& bucket) -> std::function<void()> {
      const GradModeScope recording(true);
      const Tensor inner = ddp(ones({1, 2})).second.sum();
      EXPECT_THROW(inner.backward(), AutogradError);
      own.all_reduce(bucket.gradients, parallel::ReduceOp::avg);
      return {};
    });
    ddp(ones({3, 2})).first.sum().backward();
    group.barrier();
    EXPECT_TRUE(model.left.weight.grad().defined());
  });
}

// The gradients of the captured step would stay local to this rank.
TEST(DdpErrors, AStepThatWasCapturedBeforeItsModuleWasWrapped) {
  as_ranks(2, [](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    auto step = graph::capture([&](const Tensor& x) {
      sgd.zero_grad();
      const Tensor loss = model(x).pow(2).mean();
      loss.backward();
      sgd.step();
      return loss;
    });
    const Tensor x = batch_of(4).x;
    for (int i = 0; i < 3; ++i) {
      step(x);
    }
    EXPECT_GT(step.stats().replayed, 0);
    DistributedDataParallel ddp(model);
    const auto before = model.fc1.weight.detach().to("cpu:0").to_vector<double>();
    EXPECT_NE(message_of<AutogradError>([&] { step(x); }).find("no output of the wrapped module took part"),
              std::string::npos);
    EXPECT_EQ(model.fc1.weight.detach().to("cpu:0").to_vector<double>(), before);
  });
}

}  // namespace
}  // namespace tandem::test

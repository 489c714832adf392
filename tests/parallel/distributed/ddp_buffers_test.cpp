#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/ranks.h"

// Buffers at the end of a pass, and graphs that have saved them.

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;

struct Scaled : nn::Module<Scaled> {
  nn::Linear layer = child("layer", nn::Linear(2, 2));
  Tensor scale = buffer("scale", full({2}, 2.0));
  Tensor turned = buffer("turned", ones({2, 3}).transpose(0, 1));
  Tensor forward(const Tensor& x) const { return layer(x) * scale * turned.sum(0); }
};

TEST(DdpBuffers, ThatStayTheSameSpoilNoGraph) {
  as_ranks(3, [](ProcessGroup&) {
    Scaled model;
    DistributedDataParallel ddp(model);
    const Tensor kept = ddp(ones({1, 2})).sum();
    kept.backward({}, true);
    kept.backward();
    const Tensor first = ddp(ones({1, 2})).sum();
    const Tensor second = ddp(ones({1, 2})).sum();
    first.backward();
    second.backward();
    EXPECT_EQ(model.layer.bias.grad().to("cpu:0").to_vector<float>(), std::vector<float>(2, 24.0F));
  });
}

TEST(DdpBuffers, ThatRankZeroAloneChangesAreNewOnTheOthers) {
  as_ranks(2, [](ProcessGroup& group) {
    Scaled model;
    DistributedDataParallel ddp(model);
    const Tensor kept = ddp(ones({1, 2})).sum();
    kept.backward({}, true);
    const auto version = model.scale.version();
    if (group.rank() == 0) {
      const NoGradGuard no_grad;
      model.scale.fill_(3.0);
    }
    ddp(ones({1, 2})).sum().backward();
    EXPECT_EQ(model.scale.to("cpu:0").to_vector<float>(), std::vector<float>(2, 3.0F));
    EXPECT_NE(model.scale.version(), version);
    EXPECT_THROW(kept.backward(), AutogradError) << "it saved other values";
  });
}

TEST(DdpBuffers, BecomeThoseOfRankZeroInTheFirstPassWithoutAStartThatDoesIt) {
  as_ranks(2, [](ProcessGroup& group) {
    Scaled model;
    {
      const NoGradGuard no_grad;
      model.scale.fill_(1.0 + group.rank());
    }
    DistributedDataParallel ddp(model, {.init_sync = false});
    ddp(ones({1, 2})).sum().backward();
    EXPECT_EQ(model.scale.to("cpu:0").to_vector<float>(), std::vector<float>(2, 1.0F));
  });
}

}  // namespace
}  // namespace tandem::test

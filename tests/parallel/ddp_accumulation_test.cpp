#include <memory>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "ranks.h"

// Gradients that are there already when a pass begins: left by no_sync(), or reduced before.

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;

float grad_of(const nn::Linear& layer) { return layer.weight.grad().to("cpu:0").item<float>(); }

// One after another in a unique_ptr: the next begins before the last one ends.
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

}  // namespace
}  // namespace tandem::test

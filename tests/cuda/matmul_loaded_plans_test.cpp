#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include <cublasLt.h>
#include <gtest/gtest.h>

#include "cuda/matmul_case.h"

// Tests of choices of matrix products that come from a file.

namespace tandem::kernels {
namespace {

using gpu::Plan;
using gpu::Planner;
using test::TempDir;

class MatmulPlansFromAFile : public MatmulTuning {
 protected:
  static PlanRecord record(const PlanKey& key) {
    return {.key = key,
            .version = cublasLtGetVersion(),
            .kernels = 7,
            .time_us = 1.5,
            .algorithm = {},
            .gpu = cuda::device_name(0)};
  }
  static void load(const PlanRecord& record) {
    const TempDir dir;
    const auto plans = cuda::load_matmul_plans(dir.write("plans", gpu::write_plans(std::vector{record})));
    EXPECT_EQ(plans.loaded, 1u);
    EXPECT_EQ(plans.skipped, 0u);
  }
};

TEST_F(MatmulPlansFromAFile, HoldWithoutMeasuring) {
  Case one(Product(16, 48, 7));
  const PlanKey key = one.product.key(Fused::nothing);
  const Queue queue(test::gpu());
  cuda::set_kernel_tuning(false);
  const Plan first = *Planner::of(queue).find(queue, key, one.arguments());
  PlanRecord known = record(key);
  known.workspace = 64;  // wrong: the library reports the right size
  known.algorithm = std::bit_cast<std::array<std::uint64_t, 8>>(first.algorithm);
  load(known);
  for (const bool tuning : {false, true}) {
    cuda::set_kernel_tuning(tuning);
    const Plan* plan = Planner::of(queue).find(queue, key, one.arguments());
    EXPECT_EQ(plan->kernels, 7);
    EXPECT_EQ(plan->time_us, 1.5);
    EXPECT_EQ(plan->workspace, first.workspace);
  }
  one.run();
  EXPECT_EQ(one.out.download(), one.expected());
}

TEST_F(MatmulPlansFromAFile, OtherProcessesChooseTheSame) {
  Case one(Product(16, 48, 9));
  one.run();
  const auto known = record_of(one.product.key(Fused::nothing));
  cuda::set_kernel_tuning(false);
  const Queue queue(test::gpu());
  Planner fresh(cuda::gpu(0));
  const Plan* plan = fresh.find(queue, known->key, one.arguments());
  EXPECT_EQ(plan->time_us, known->time_us);
  EXPECT_EQ((std::bit_cast<std::array<std::uint64_t, 8>>(plan->algorithm)), known->algorithm);
}

TEST_F(MatmulPlansFromAFile, AnAlgorithmThatCannotBeIsDropped) {
  cuda::set_kernel_tuning(false);
  Case one(Product(16, 48, 11));
  const PlanKey key = one.product.key(Fused::nothing);
  load(record(key));
  const Queue queue(test::gpu());
  EXPECT_EQ(Planner::of(queue).find(queue, key, one.arguments())->kernels, 0);
  one.run();
  EXPECT_EQ(one.out.download(), one.expected());
  cuda::set_kernel_tuning(true);
  one.run();
  EXPECT_NE(record_of(key)->time_us, 1.5);
  EXPECT_EQ(one.out.download(), one.expected());
}

// The library checks an algorithm without addresses and may still refuse it with them.
TEST_F(MatmulPlansFromAFile, AnAlgorithmThatIsRefusedAtItsStartIsDropped) {
  for (const bool tuning : {false, true}) {
    for (const Fused fused : {Fused::nothing, Fused::bias}) {
      cuda::set_kernel_tuning(false);
      Product product(16, 48, tuning ? 21 : 19);
      product.with_bias = fused == Fused::bias;
      Case one(product);
      const Queue queue(test::gpu());
      Planner& planner = Planner::of(queue);
      const Plan aligned = *planner.find(queue, product.key(fused), one.arguments());
      PlanRecord known = record(product.key(fused));
      known.key.a_align = 4;
      known.workspace = aligned.workspace;
      known.algorithm = std::bit_cast<std::array<std::uint64_t, 8>>(aligned.algorithm);
      load(known);

      std::vector<float> shifted(one.host_a.size() + 1);
      std::copy(one.host_a.begin(), one.host_a.end(), shifted.begin() + 1);
      const DeviceArray<float> a(shifted);
      gpu::ProductArguments arguments = one.arguments();
      arguments.a = a.data() + 1;
      EXPECT_EQ(planner.find(queue, known.key, arguments)->kernels, 7);
      cuda::set_kernel_tuning(tuning);
      for (int i = 0; i < 2; ++i) {
        launch(test::gpu(), product.on(a.data() + 1, one.b.data(), one.bias.data(), one.out.data()));
        EXPECT_EQ(one.out.download(), one.expected());
      }
      EXPECT_NE(planner.find(queue, known.key, arguments)->kernels, 7);
    }
  }
}

TEST_F(MatmulPlansFromAFile, MaySayThatNothingIsFused) {
  cuda::set_kernel_tuning(false);
  Product product(16, 48, 13);
  product.with_bias = true;
  Case one(product);
  PlanRecord known = record(product.key(Fused::bias));
  known.separate = true;
  load(known);
  const Queue queue(test::gpu());
  EXPECT_EQ(Planner::of(queue).find(queue, known.key, one.arguments()), nullptr);
  one.run();
  EXPECT_EQ(one.out.download(), one.expected());
}

TEST_F(MatmulPlansFromAFile, DoNotReplaceWhatWasMeasured) {
  Case one(Product(16, 48, 15));
  one.run();
  const auto measured = record_of(one.product.key(Fused::nothing));
  load(record(measured->key));
  EXPECT_EQ(record_of(measured->key), measured);
}

}  // namespace
}  // namespace tandem::kernels

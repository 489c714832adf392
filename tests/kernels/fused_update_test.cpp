#include <tandem/kernels/fused_update.h>
#include <tandem/kernels/matmul_tuning.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/isa.h>
#include <tandem/core/thread_pool.h>

#include "kernels/arrays.h"

// A product with an update has the bits of the two kernels one after the other.

namespace tandem::kernels {
namespace {

using test::Rng;

struct Sizes {
  std::int64_t out, in, batch;
};

// A weight [out, in] with its state, and the operands of its gradient.
struct Weight {
  Sizes sizes;
  std::vector<float> x, grad_y, gradient, weight, first, second, third;
  StepState state{.learning_rate = 0.1, .step = 3, .momentum = 0.9, .weight_decay = 0.01};

  explicit Weight(const Sizes& of) : sizes(of) {
    Rng rng(7);
    const std::int64_t count = of.out * of.in;
    x = test::random_values<float>(rng, std::max<std::int64_t>(1, of.batch * of.in));
    grad_y = test::random_values<float>(rng, std::max<std::int64_t>(1, of.batch * of.out));
    gradient = test::random_values<float>(rng, count);
    weight = test::random_values<float>(rng, count);
    first = test::random_values<float>(rng, count);
    second = test::random_values<float>(rng, count);
    for (float& value : second)
      value *= value;
    third = second;
  }

  Matmul product() {
    return {.dtype = DType::f32,
            .m = sizes.out,
            .n = sizes.in,
            .k = sizes.batch,
            .a = {grad_y.data(), 1, sizes.out},
            .b = {x.data(), sizes.in, 1},
            .out = gradient.data(),
            .out_stride = sizes.in};
  }
  std::int64_t count() const { return sizes.out * sizes.in; }
  Sgd sgd(bool momentum) {
    return {.dtype = DType::f32,
            .count = count(),
            .param = weight.data(),
            .grad = gradient.data(),
            .momentum_buffer = momentum ? first.data() : nullptr,
            .state = &state,
            .dampening = 0.1,
            .nesterov = false};
  }
  Adam adam(bool amsgrad) {
    return {.dtype = DType::f32,
            .count = count(),
            .param = weight.data(),
            .grad = gradient.data(),
            .exp_avg = first.data(),
            .exp_avg_sq = second.data(),
            .state = &state,
            .beta2 = 0.99,
            .eps = 1e-8,
            .decoupled = !amsgrad,
            .max_exp_avg_sq = amsgrad ? third.data() : nullptr};
  }
  std::tuple<std::vector<float>, std::vector<float>, std::vector<float>, std::vector<float>> updated() const {
    return {weight, first, second, third};
  }
};

// make(weight) makes the update.
template <class Fused, class Make>
void expect_fused_is_separate(const Sizes& sizes, Accumulate accumulate, Make&& make) {
  SCOPED_TRACE(testing::Message() << sizes.out << " x " << sizes.in << ", batch " << sizes.batch);
  Weight separate(sizes);
  Matmul product = separate.product();
  product.accumulate = accumulate;
  run(OnCpu{}, test::cpu(), product);
  run(OnCpu{}, test::cpu(), make(separate));

  for (const bool long_rows : {false, true}) {
    set_long_update_rows(long_rows);
    Weight fused(sizes);
    Matmul own = fused.product();
    own.accumulate = accumulate;
    run(OnCpu{}, test::cpu(), Fused{own, make(fused)});
    EXPECT_EQ(fused.updated(), separate.updated()) << "long rows: " << long_rows;
  }
}

class FusedUpdate : public testing::Test {
 protected:
  void SetUp() override { set_least_fused_update(1); }
  void TearDown() override {
    set_least_fused_update(kLeastFusedUpdate);
    set_long_update_rows(!core::is_intel());
  }
};

// Odd sizes, rows longer than a block of columns, depths of several blocks, and products too small for tiles.
const std::vector<Sizes> kSizes{{1, 1, 1},       {2, 3, 4},       {3, 17, 5},    {64, 32, 16},  {33, 65, 1},
                                {7, 5000, 3},    {50, 23, 300},   {13, 40, 700}, {97, 128, 64}, {1, 33, 9},
                                {128, 200, 520}, {40, 2100, 520}, {5, 4, 0},     {2, 100, 1},   {100, 2, 9}};

TEST_F(FusedUpdate, SgdHasTheBitsOfTheKernelsOneAfterTheOther) {
  for (const Sizes& sizes : kSizes)
    for (const bool momentum : {false, true})
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes})
        expect_fused_is_separate<MatmulSgd>(sizes, accumulate, [&](Weight& w) { return w.sgd(momentum); });
}

TEST_F(FusedUpdate, AdamHasTheBitsOfTheKernelsOneAfterTheOther) {
  for (const Sizes& sizes : kSizes)
    for (const bool amsgrad : {false, true})
      expect_fused_is_separate<MatmulAdam>(sizes, Accumulate::no, [&](Weight& w) { return w.adam(amsgrad); });
}

TEST_F(FusedUpdate, AtMediumPrecisionItHasTheBitsOfTheKernelsOneAfterTheOther) {
  set_float32_matmul_precision("medium");
  for (const Sizes& sizes : kSizes)
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes})
      expect_fused_is_separate<MatmulSgd>(sizes, accumulate, [&](Weight& w) { return w.sgd(true); });
  set_float32_matmul_precision("highest");
}

TEST_F(FusedUpdate, FitsLargeWeightsAndTilesOnly) {
  Weight weight({64, 32, 16});
  const bool can = core::isa() != core::Isa::baseline;
  EXPECT_EQ(fuses_update(Device(), weight.product()), can);
  EXPECT_FALSE(fuses_update(Device(DeviceType::cuda, 0), weight.product()));
  Matmul product = weight.product();
  product.after.relu = true;
  EXPECT_FALSE(fuses_update(Device(), product));
  product = weight.product();
  product.m = 3;
  EXPECT_FALSE(fuses_update(Device(), product));
  set_least_fused_update(64 * 32 + 1);
  EXPECT_FALSE(fuses_update(Device(), weight.product()));
}

TEST_F(FusedUpdate, GoesUphill) {
  expect_fused_is_separate<MatmulSgd>({33, 65, 20}, Accumulate::no, [](Weight& w) {
    Sgd update = w.sgd(true);
    update.nesterov = true, update.dampening = 0, update.maximize = true;
    return update;
  });
}

TEST_F(FusedUpdate, LeavesOutAStepWhoseGradientsAreNotFinite) {
  const GradScale scale{.inverse = 0.5, .found_inf = 1, .skipped = 0};
  Weight weight({33, 65, 20});
  const auto before = weight.updated();
  weight.state.scale = &scale;
  run(OnCpu{}, test::cpu(), MatmulSgd{weight.product(), weight.sgd(true)});
  EXPECT_EQ(weight.updated(), before);
}

TEST_F(FusedUpdate, ScalesGradients) {
  const GradScale scale{.inverse = 0.25, .found_inf = 0, .skipped = 0};
  expect_fused_is_separate<MatmulAdam>({33, 65, 20}, Accumulate::no, [&](Weight& w) {
    w.state.scale = &scale;
    return w.adam(false);
  });
}

TEST_F(FusedUpdate, TheNumberOfThreadsChangesNoBit) {
  const int before = num_threads();
  std::vector<decltype(Weight({1, 1, 1}).updated())> results;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    Weight weight({256, 300, 100});
    run(OnCpu{}, test::cpu(), MatmulAdam{weight.product(), weight.adam(false)});
    results.push_back(weight.updated());
  }
  set_num_threads(before);
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST_F(FusedUpdate, TakesOperandsOfAnyOrder) {
  Weight separate({40, 50, 60});
  Weight fused({40, 50, 60});
  Matmul product = separate.product();
  product.b = {separate.x.data(), 1, 60};
  run(OnCpu{}, test::cpu(), product);
  run(OnCpu{}, test::cpu(), separate.sgd(true));
  product = fused.product();
  product.b = {fused.x.data(), 1, 60};
  run(OnCpu{}, test::cpu(), MatmulSgd{product, fused.sgd(true)});
  EXPECT_EQ(fused.updated(), separate.updated());
}

}  // namespace
}  // namespace tandem::kernels

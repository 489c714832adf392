#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/graph/capture.h>
#include <tandem/tensor/factories.h>

// Element-wise launches of a captured step that run together, a piece of their elements at a time.

namespace tandem {
namespace {

constexpr std::int64_t kCount = 50'001;

using Step = std::function<Tensor(const Tensor& x)>;

// Runs the step on copies of `x`, as it is and captured, and expects the same bits. Returns the joined launches.
std::size_t expect_same(const Step& step, const Tensor& x) {
  auto captured = graph::capture([&](const Tensor& in) { return step(in); });
  for (int i = 0; i < 4; ++i) {
    const Tensor in = x + i;
    const std::vector<double> expected = step(in.clone()).to_vector<double>();
    EXPECT_EQ(captured(in.clone()).to_vector<double>(), expected) << "call " << i;
  }
  return captured.stats().joined_launches;
}

TEST(CapturedPointwise, RunsOfLaunchesHaveTheBitsOfSingleOnes) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64}) {
    const Tensor x = (rand({kCount}) * 8 - 4).to(dtype);
    EXPECT_EQ(expect_same([](const Tensor& in) { return (in * in + 3) * in - in.relu(); }, x), 4U) << name(x.dtype());
  }
  const auto chain = [](const Tensor& in) { return (in.sin() * in).tanh().exp() / (in.abs() + 1) - in.sigmoid(); };
  EXPECT_GE(expect_same(chain, randn({3, kCount})), 7U);
}

TEST(CapturedPointwise, ChangesInPlaceAreARunToo) {
  const auto step = [](const Tensor& in) {
    Tensor x = in + 0;
    x.mul_(2).add_(in).tanh_();
    x.sub_(x * x);
    return x;
  };
  EXPECT_GE(expect_same(step, randn({kCount})), 5U);
}

TEST(CapturedPointwise, WhatIsShiftedIsNoPartOfARun) {
  const auto step = [](const Tensor& in) {
    Tensor x = in + 1;
    x.narrow(0, 0, kCount - 1).add_(x.narrow(0, 1, kCount - 1) * 0.5);
    x.narrow(0, 1, kCount - 1).mul_(3);
    return x * x[0];  // one element for all
  };
  expect_same(step, randn({kCount}));
  const auto scaled_by_what_changes = [](const Tensor& in) {
    Tensor x = in + 0;
    Tensor y = in * x[7000];
    x.add_(1);
    y.mul_(x[7000]);
    x.mul_(y);
    return x + y;
  };
  expect_same(scaled_by_what_changes, randn({kCount}));
}

TEST(CapturedPointwise, SmallTensorsRunOneByOne) {
  EXPECT_EQ(expect_same([](const Tensor& in) { return (in * 2 + 1).tanh(); }, randn({4095})), 0U);
}

TEST(CapturedPointwise, RandomProgramsOnOverlappingPartsHaveTheSameBits) {
  constexpr std::int64_t kPart = 20'000;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::size_t> choices(60);
    std::ranges::generate(choices, std::ref(random));
    const auto step = [&](const Tensor& in) {
      Tensor memory = cat({in, in * 0.5});
      std::size_t at = 0;
      const auto part = [&] {
        constexpr std::int64_t kStarts[] = {0, 0, 0, 20'000, 20'000, 1, 2048, 19'999, 30'000};
        return memory.narrow(0, kStarts[choices[at++] % 9], kPart);
      };
      for (int i = 0; i < 12; ++i) {
        Tensor target = part();
        const Tensor source = part();
        switch (choices[at++] % 5) {
          case 0: target.add_(source); break;
          case 1: target.mul_(source).clamp_(-8, 8); break;
          case 2: target.copy_(source.tanh() + target); break;
          case 3: target.sub_(source * source[3]); break;
          default: target.copy_(source.sin()); break;
        }
      }
      return memory + 0;
    };
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_same(step, randn({2 * kPart}));
  }
}

}  // namespace
}  // namespace tandem

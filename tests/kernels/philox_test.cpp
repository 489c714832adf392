#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/cpu/random_rows.h>
#include <tandem/kernels/dropout.h>
#include <tandem/kernels/philox.h>
#include <tandem/kernels/random.h>

#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using Block = std::array<std::uint32_t, 4>;

// The known-answer vectors of Random123 (philox4x32-10).
TEST(Philox, GivesThePublishedNumbers) {
  EXPECT_EQ(philox(0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DependsOnEveryPartOfKeyAndCounter) {
  std::set<Block> blocks{philox(1, 1, 1)};
  for (int bit = 0; bit < 64; ++bit) {
    blocks.insert(philox(1 ^ (1ull << bit), 1, 1));
    blocks.insert(philox(1, 1 ^ (1ull << bit), 1));
    blocks.insert(philox(1, 1, 1 ^ (1ull << bit)));
  }
  EXPECT_EQ(blocks.size(), 1u + 3 * 64);
}

TEST(Uniform, IsBelowOneAndOnItsGrid) {
  EXPECT_EQ(uniform_f32(0), 0.0f);
  EXPECT_EQ(uniform_f32(0xffffffff), 1.0f - 0x1p-24f);
  EXPECT_LT(uniform_f32(0xffffffff), 1.0f);
  EXPECT_EQ(uniform_f32(0xff), 0.0f);
  EXPECT_EQ(uniform_f32(0x100), 0x1p-24f);
  EXPECT_EQ(uniform_f64(0, 0), 0.0);
  EXPECT_EQ(uniform_f64(0xffffffff, 0xffffffff), 1.0 - 0x1p-53);
  EXPECT_EQ(uniform_f64(0, 0x800), 0x1p-53);
  EXPECT_EQ(uniform_f64(0x80000000, 0), 0.5);
}

TEST(Bounded, IsTheHighHalfOfTheProduct) {
  test::Rng rng(83);
  for (int i = 0; i < 10000; ++i) {
    const std::uint64_t draw = rng();
    const std::uint64_t bound = rng() >> (rng() % 64);
    __extension__ using Wide = unsigned __int128;
    const auto expected = static_cast<std::uint64_t>((static_cast<Wide>(draw) * bound) >> 64);
    ASSERT_EQ(bounded(static_cast<std::uint32_t>(draw >> 32), static_cast<std::uint32_t>(draw), bound), expected);
  }
  EXPECT_EQ(bounded(0xffffffff, 0xffffffff, 10), 9u);
  EXPECT_EQ(bounded(0, 0, 10), 0u);
  EXPECT_EQ(bounded(0xffffffff, 0xffffffff, 1), 0u);
  EXPECT_EQ(bounded(0xffffffff, 0xffffffff, ~0ull), ~0ull - 1);
}

template <class T>
std::vector<T> fill(Distribution distribution, std::int64_t count, double low, double high, std::uint64_t seed = 5,
                    std::uint64_t offset = 0, StepState state = {}) {
  std::vector<T> out(static_cast<std::size_t>(count));
  launch(test::cpu(), RandomFill{.distribution = distribution,
                                 .dtype = dtype_of<T>,
                                 .out = out.data(),
                                 .count = count,
                                 .low = low,
                                 .high = high,
                                 .seed = seed,
                                 .offset = offset,
                                 .state = &state});
  return out;
}

TEST(RandomFill, ElementsComeFromTheBlocksTheContractNames) {
  const auto values = fill<double>(Distribution::uniform, 7, 0, 1, 42, 1000, {.random_offset = 30});
  for (std::uint64_t i = 0; i < 7; ++i) {
    const Block block = philox(42, 1030 + i / 2);
    EXPECT_EQ(values[i], i % 2 == 0 ? uniform_f64(block[0], block[1]) : uniform_f64(block[2], block[3]));
  }
}

TEST(RandomFill, APrefixIsTheSameWhateverTheLength) {
  const auto whole = fill<float>(Distribution::normal, 50001, 0, 1);
  for (const std::int64_t count : {1, 2, 3, 8191, 8192, 8193, 20000}) {
    const auto prefix = fill<float>(Distribution::normal, count, 0, 1);
    EXPECT_TRUE(std::equal(prefix.begin(), prefix.end(), whole.begin())) << count;
  }
}

TEST(RandomFill, OffsetsContinueTheSequence) {
  const auto whole = fill<float>(Distribution::uniform, 100, 0, 1);
  const auto rest = fill<float>(Distribution::uniform, 60, 0, 1, 5, 20);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 40));
}

TEST(RandomFill, TypesAgree) {
  const auto wide = fill<double>(Distribution::uniform, 1000, 0, 1);
  const auto narrow = fill<float>(Distribution::uniform, 1000, 0, 1);
  EXPECT_LE(test::difference(narrow, wide, 1), 0x1p-24);
  EXPECT_LE(
      test::difference(fill<float>(Distribution::normal, 1000, 2, 3), fill<double>(Distribution::normal, 1000, 2, 3)),
      1e-7);
  const auto longs = fill<std::int64_t>(Distribution::integer, 1000, 0, 200);
  EXPECT_EQ(test::difference(fill<std::int32_t>(Distribution::integer, 1000, 0, 200), longs), 0);
  EXPECT_EQ(test::difference(fill<std::uint8_t>(Distribution::integer, 1000, 0, 200), longs), 0);
  EXPECT_EQ(test::difference(fill<float>(Distribution::integer, 1000, 0, 200), longs), 0);
}

TEST(RandomFill, UniformNeverReachesItsEnd) {
  // A range so narrow that rounding could reach its end.
  const float low = 1.0f;
  const float high = std::nextafter(low, 2.0f);
  for (const float value : fill<float>(Distribution::uniform, 10000, low, high))
    ASSERT_EQ(value, low);
  for (const float value : fill<float>(Distribution::uniform, 10000, 1e6, 1e6 + 1)) {
    ASSERT_GE(value, 1e6f);
    ASSERT_LT(value, 1e6f + 1);
  }
  for (const float value : fill<float>(Distribution::uniform, 10, 3, 3))
    ASSERT_EQ(value, 3);
}

TEST(RandomFill, IntegersCoverTheirRange) {
  const auto values = fill<std::int64_t>(Distribution::integer, 2000, -3, 4);
  EXPECT_EQ(std::set<std::int64_t>(values.begin(), values.end()), (std::set<std::int64_t>{-3, -2, -1, 0, 1, 2, 3}));
  const double big = 0x1p53;
  for (const std::int64_t value : fill<std::int64_t>(Distribution::integer, 1000, -big, big)) {
    ASSERT_GE(value, -(std::int64_t{1} << 53));
    ASSERT_LT(value, std::int64_t{1} << 53);
  }
}

using Numbers = void (*)(std::uint32_t*, std::int64_t, std::uint64_t, std::uint64_t);
using NormalRow = void (*)(float*, const std::uint32_t*, std::int64_t, float, float);

std::pair<Numbers, NormalRow> random_rows_on(core::Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case core::Isa::baseline: break;
    case core::Isa::avx2: return {cpu::avx2::philox_numbers, cpu::avx2::normal_row};
    case core::Isa::avx512: return {cpu::avx512::philox_numbers, cpu::avx512::normal_row};
  }
#endif
  return {cpu::baseline::philox_numbers, cpu::baseline::normal_row};
}

class RandomRowsOf : public ::testing::TestWithParam<core::Isa> {};

TEST_P(RandomRowsOf, NumbersAreThoseOfTheBlocksAtAnyLength) {
  constexpr std::uint64_t kCounter = 0xfffffffe;  // the upper half counts on
  for (const std::int64_t count : {0, 1, 2, 5, 63, 64, 66, 1000}) {
    std::vector<std::uint32_t> numbers(static_cast<std::size_t>(count) + 1, 7);
    random_rows_on(GetParam()).first(numbers.data(), count, 0x123456789abcdef0, kCounter);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      ASSERT_EQ(numbers[i], philox(0x123456789abcdef0, kCounter + i / 4)[i % 4]) << i << " of " << count;
    }
    EXPECT_EQ(numbers.back(), 7U) << count;
  }
}

// The digits stay where the logarithm or the cosine is next to 0. Where it is 0, f64 gives some 1e-15.
TEST_P(RandomRowsOf, NormalNumbersHaveTheDigitsOfTheFormula) {
  std::vector<std::uint32_t> numbers;
  const std::vector<std::uint32_t> edges{0,          1,          0x3fffffff, 0x40000000, 0x40000001, 0x7fffffff,
                                         0x80000000, 0x80000001, 0xbfffffff, 0xc0000000, 0xc0000001, 0xffffff00,
                                         0xfffffffe, 0xffffffff, 0x1fffffff, 0x20000000, 0xdfffffff, 0xe0000000};
  for (const std::uint32_t first : edges) {
    for (const std::uint32_t second : edges) {
      numbers.insert(numbers.end(), {first, second});
    }
  }
  for (std::uint64_t counter = 0; counter < 20'000; ++counter) {
    const Block block = philox(3, counter);
    numbers.insert(numbers.end(), block.begin(), block.end());
  }
  const std::size_t count = numbers.size() / 2;
  std::vector<float> values(count + 1, 7);
  random_rows_on(GetParam()).second(values.data(), numbers.data(), static_cast<std::int64_t>(count), 0, 1);
  for (std::size_t i = 0; i < count; ++i) {
    const double exact = draw<Distribution::normal, double>(0, 1, numbers[2 * i], numbers[2 * i + 1]);
    ASSERT_LE(std::abs(static_cast<double>(values[i]) - exact), 4e-7 * std::abs(exact) + 1e-14)
        << std::hex << numbers[2 * i] << " " << numbers[2 * i + 1];
  }
  EXPECT_EQ(values.back(), 7);
}

INSTANTIATE_TEST_SUITE_P(Isas, RandomRowsOf, ::testing::ValuesIn(core::available_isas()),
                         [](const auto& isa) { return core::to_string(isa.param); });

TEST(RandomFill, NormalNumbersOfADeviationBeyondTheTypeAreThoseThatTheTypeHas) {
  for (const double deviation : {1e39, 1e-44}) {
    const auto wide = fill<double>(Distribution::normal, 1000, 0, deviation);
    const auto narrow = fill<float>(Distribution::normal, 1000, 0, deviation);
    for (std::size_t i = 0; i < wide.size(); ++i)
      ASSERT_EQ(narrow[i], static_cast<float>(wide[i])) << deviation;
  }
}

TEST(RandomFill, NormalNumbersAreFinite) {
  for (const float value : fill<float>(Distribution::normal, 300000, 0, 1))
    ASSERT_TRUE(std::isfinite(value));
}

template <class T>
void drop_out(const std::vector<T>& in, double p, std::vector<T>& out, std::vector<std::uint8_t>& mask,
              std::uint64_t seed, std::uint64_t offset, const StepState& state) {
  launch(test::cpu(), Dropout{.dtype = dtype_of<T>,
                              .count = static_cast<std::int64_t>(in.size()),
                              .p = p,
                              .in = in.data(),
                              .out = out.data(),
                              .mask = mask.data(),
                              .seed = seed,
                              .offset = offset,
                              .state = &state});
}

TEST(Dropout, KeepsAndScalesByItsMask) {
  constexpr std::uint64_t kCarries = 0xffffffff - 100 - 3;  // the lower half of a counter carries into the upper one
  StepState state{.random_offset = kCarries};
  for (const std::int64_t count : {1, 3, 4, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 8192, 8193, 20003}) {
    test::Rng rng(89);
    const auto in = test::random_values<float>(rng, count, 0.5, 1);
    std::vector<float> out(in.size());
    std::vector<std::uint8_t> mask(in.size(), 7);
    drop_out(in, 0.25, out, mask, 9, 100, state);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const bool keep = uniform_f32(philox(9, kCarries + 100 + i / 4)[i % 4]) >= 0.25f;
      ASSERT_EQ(mask[i], keep);
      ASSERT_EQ(out[i], keep ? in[i] * static_cast<float>(1 / 0.75) : 0.0f);
    }
    auto grad = test::random_values<float>(rng, count);
    const auto before = grad;
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
      launch(test::cpu(), DropoutGrad{.dtype = DType::f32,
                                      .accumulate = accumulate,
                                      .count = count,
                                      .p = 0.25,
                                      .grad = in.data(),
                                      .mask = mask.data(),
                                      .in_grad = grad.data()});
      for (std::size_t i = 0; i < in.size(); ++i) {
        ASSERT_EQ(grad[i], out[i] * (accumulate == Accumulate::yes ? 2 : 1)) << "the same factor as forward";
      }
    }
  }
}

// Tests a p that f32 does not hold exactly, and one where the last of the 24 bits decides.
TEST(Dropout, KeepsWhatIsNotBelowP) {
  StepState state;
  constexpr std::int64_t kCount = 50000;
  const std::vector<float> in(kCount, 1);
  for (const double p : {0.1, 0.3, 0x1p-24, 0x1.8p-24, 1 - 0x1p-24, 1 - 0x1p-30}) {
    std::vector<float> out(in.size());
    std::vector<std::uint8_t> mask(in.size(), 7);
    drop_out(in, p, out, mask, 0x123456789abcdef0, 0, state);
    for (std::size_t i = 0; i < in.size(); ++i) {
      ASSERT_EQ(mask[i], uniform_f32(philox(0x123456789abcdef0, i / 4)[i % 4]) >= static_cast<float>(p) ? 1 : 0) << p;
    }
  }
}

TEST(Dropout, AllOrNothing) {
  StepState state;
  const auto check = [&]<class T>(T) {
    const std::vector<T> in{1, -2, INFINITY, 4, 5};
    for (const double p : {0.0, 1.0}) {
      std::vector<T> out(in.size(), 99);
      std::vector<std::uint8_t> mask(in.size());
      drop_out(in, p, out, mask, 1, 0, state);
      EXPECT_EQ(out, p == 0 ? in : std::vector<T>(in.size(), 0)) << "no NaN from infinity times zero";
    }
  };
  check(float());
  check(double());
}

}  // namespace
}  // namespace tandem::kernels

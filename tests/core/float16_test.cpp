#include <tandem/core/float16.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace tandem {
namespace {

// The value of 16 bits by the definition of the format.
double value_of(std::uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias - fraction_bits)
                       : sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

template <class T>
void check_every_value(int exponent_bits) {
  for (int i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = T::from_bits(bits);
    const double expected = value_of(bits, exponent_bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_TRUE(std::isnan(static_cast<float>(T(value)))) << i;
    } else {
      ASSERT_EQ(value, expected) << i;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0);
      ASSERT_EQ(T(value).bits(), bits) << "and back";
    }
  }
}

// Numbers between two neighbors: below the middle they round down, above it up, and the middle rounds to even.
template <class T>
void check_rounding(int largest_bits) {
  for (int i = 0; i < largest_bits; ++i) {
    const auto low = static_cast<std::uint16_t>(i);
    const auto high = static_cast<std::uint16_t>(i + 1);
    const float a = T::from_bits(low);
    const float middle = a + (T::from_bits(high) - a) / 2;  // exact in f32
    if (middle == a) continue;                              // the smallest steps of bfloat16 have no middle in f32
    ASSERT_EQ(T(middle).bits(), i % 2 == 0 ? low : high) << i;
    ASSERT_EQ(T(std::nextafter(middle, 0.0F)).bits(), low) << i;
    ASSERT_EQ(T(std::nextafter(middle, std::numeric_limits<float>::infinity())).bits(), high) << i;
    ASSERT_EQ(T(-middle).bits(), (i % 2 == 0 ? low : high) | 0x8000) << i;
  }
}

TEST(BFloat16, HoldsWhatItsBitsSay) { check_every_value<BFloat16>(8); }
TEST(Float16, HoldsWhatItsBitsSay) { check_every_value<Float16>(5); }
TEST(BFloat16, RoundsToNearestEven) { check_rounding<BFloat16>(0x7F7F); }
TEST(Float16, RoundsToNearestEven) { check_rounding<Float16>(0x7BFF); }

TEST(Float16, OverflowsToInfinityFromTheMiddleBehindItsLargestValue) {
  EXPECT_EQ(Float16(65504.0F).bits(), 0x7BFF);
  EXPECT_EQ(Float16(65519.99F).bits(), 0x7BFF);
  EXPECT_EQ(Float16(65520.0F).bits(), 0x7C00);
  EXPECT_EQ(Float16(-1e30F).bits(), 0xFC00);
  EXPECT_EQ(Float16(0x1p-25F).bits(), 0) << "a tie to even";
  EXPECT_EQ(Float16(0x1.8p-25F).bits(), 1);
  EXPECT_EQ(Float16(std::numeric_limits<float>::denorm_min()).bits(), 0);
}

TEST(Float16, ANaNIsQuietAsInstructionsOfProcessorsMakeIt) {
  const float nan = Float16::from_bits(0x7C01);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(nan), 0x7FC02000U);
  const float negative = Float16::from_bits(0xFE00);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(negative), 0xFFC00000U);
}

TEST(BFloat16, OverflowsToInfinity) {
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits(), 0x7F80);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x7F800001u)).bits(), 0x7FC0) << "a NaN stays one";
}

TEST(Float16, ConvertsAtCompileTime) {
  static_assert(static_cast<float>(Float16(1.5F)) == 1.5F);
  static_assert(static_cast<float>(BFloat16(-2.0F)) == -2.0F);
  static_assert(static_cast<float>(Float16::from_bits(1)) == 0x1p-24F);
  static_assert(is_16_bit<Float16> && is_16_bit<BFloat16> && !is_16_bit<float>);
}

}  // namespace
}  // namespace tandem

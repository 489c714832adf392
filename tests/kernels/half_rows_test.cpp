#include <tandem/kernels/cpu/half_rows.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

// Rows of 16-bit numbers become f32 and back by the instruction set in use. Each element has the bits that the type's
// own conversion gives it, wherever in the row it is.

namespace tandem::kernels {
namespace {

template <class T>
class HalfRowsOf : public ::testing::Test {};
using HalfTypes = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(HalfRowsOf, HalfTypes);

constexpr std::int64_t kLengths[] = {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33};

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

TYPED_TEST(HalfRowsOf, EveryValueIsWidened) {
  std::vector<TypeParam> halves;
  for (int i = 0; i < 0x10000; ++i) {
    halves.push_back(TypeParam::from_bits(static_cast<std::uint16_t>(i)));
  }
  std::vector<float> floats(halves.size());
  cpu::widen(floats.data(), halves.data(), static_cast<std::int64_t>(halves.size()));
  for (std::size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(bits_of(floats[i]), bits_of(halves[i])) << i;
  }
}

// Numbers around every value and every middle between two, numbers of any bits, infinities and NaN of several kinds.
template <class T>
std::vector<float> numbers_to_round() {
  std::vector<float> floats = {INFINITY, -INFINITY, 65519.9F, 65520.0F, 3.4e38F, 1e-45F, -0.0F};
  for (const std::uint32_t nan : {0x7fc00000U, 0xffc00000U, 0x7f800001U, 0xff812345U, 0x7fffffffU}) {
    floats.push_back(std::bit_cast<float>(nan));
  }
  for (int i = 0; i < 0x10000; ++i) {
    const auto value = static_cast<float>(T::from_bits(static_cast<std::uint16_t>(i)));
    const std::uint32_t half_step = std::is_same_v<T, Float16> ? 0x1000 : 0x8000;
    for (const std::uint32_t bits :
         {bits_of(value), bits_of(value) + half_step, bits_of(value) + half_step - 1, bits_of(value) + half_step + 1}) {
      floats.push_back(std::bit_cast<float>(bits));
    }
  }
  std::mt19937 rng(7);
  for (int i = 0; i < 100'000; ++i) {
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(rng())));
  }
  return floats;
}

TYPED_TEST(HalfRowsOf, EveryNumberIsRoundedToTheNearest) {
  const std::vector<float> floats = numbers_to_round<TypeParam>();
  std::vector<TypeParam> halves(floats.size());
  cpu::narrow(halves.data(), floats.data(), static_cast<std::int64_t>(floats.size()));
  for (std::size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(halves[i].bits(), TypeParam(floats[i]).bits()) << bits_of(floats[i]);
  }
}

TYPED_TEST(HalfRowsOf, NothingIsWrittenBehindARow) {
  for (const std::int64_t length : kLengths) {
    const std::vector<float> values(static_cast<std::size_t>(length), 1.5F);
    std::vector<TypeParam> halves(static_cast<std::size_t>(length) + 1, TypeParam(-3.0F));
    cpu::narrow(halves.data(), values.data(), length);
    std::vector<float> floats(static_cast<std::size_t>(length) + 1, -3.0F);
    cpu::widen(floats.data(), halves.data(), length);
    for (std::int64_t i = 0; i <= length; ++i) {
      const float expected = i < length ? 1.5F : -3.0F;
      EXPECT_EQ(static_cast<float>(halves[static_cast<std::size_t>(i)]), expected) << i << " of " << length;
      EXPECT_EQ(floats[static_cast<std::size_t>(i)], expected) << i << " of " << length;
    }
  }
}

}  // namespace
}  // namespace tandem::kernels

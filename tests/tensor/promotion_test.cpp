#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"

// Dtypes of results, as in PyTorch's result_type.

namespace tandem {
namespace {

using test::message_of;
using enum DType;

constexpr DType kTypes[] = {f32, f64, bf16, f16, i64, i32, u8, boolean};

// Rows and columns follow the order of kTypes; the values come from torch.promote_types.
constexpr DType kPromoted[8][8] = {
    {f32, f64, f32, f32, f32, f32, f32, f32},      {f64, f64, f64, f64, f64, f64, f64, f64},
    {f32, f64, bf16, f32, bf16, bf16, bf16, bf16}, {f32, f64, f32, f16, f16, f16, f16, f16},
    {f32, f64, bf16, f16, i64, i64, i64, i64},     {f32, f64, bf16, f16, i64, i32, i32, i32},
    {f32, f64, bf16, f16, i64, i32, u8, u8},       {f32, f64, bf16, f16, i64, i32, u8, boolean}};

TEST(PromoteTypes, IsPyTorchs) {
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) {
      EXPECT_EQ(promote_types(kTypes[i], kTypes[j]), kPromoted[i][j]) << name(kTypes[i]) << " and " << name(kTypes[j]);
      const Tensor sum = ones({2}, {.dtype = kTypes[i]}) + ones({2}, {.dtype = kTypes[j]});
      EXPECT_EQ(sum.dtype(), kPromoted[i][j]);
      EXPECT_EQ(sum[1].item(), kPromoted[i][j] == boolean ? 1 : 2);
    }
  }
}

TEST(Promotion, NumbersDoNotWidenTheirOwnKind) {
  for (const DType dtype : kTypes) {
    const Tensor x = ones({2}, {.dtype = dtype});
    EXPECT_EQ((x * 2.5).dtype(), is_floating_point(dtype) ? dtype : f32);
    EXPECT_EQ((x + 1).dtype(), dtype == boolean ? i64 : dtype);
    EXPECT_EQ((2 - x).dtype(), dtype == boolean ? i64 : dtype);
    EXPECT_EQ((x / 2).dtype(), is_floating_point(dtype) ? dtype : f32);
    EXPECT_EQ((x / x).dtype(), is_floating_point(dtype) ? dtype : f32);
    if (dtype != boolean) {
      EXPECT_EQ(x.pow(2).dtype(), dtype);
      EXPECT_EQ(x.exp().dtype(), is_floating_point(dtype) ? dtype : f32);
    }
  }
  EXPECT_EQ((tensor({1, 2}) * 0.5).to_vector<float>(), (std::vector<float>{0.5, 1}));
  EXPECT_EQ((tensor({7}) / 2).item(), 3.5);
}

TEST(Promotion, TensorsWithoutDimensionsCountLikeNumbers) {
  const Tensor single = tensor(2.0, {.dtype = f64});
  EXPECT_EQ((ones({2}) * single).dtype(), f32);
  EXPECT_EQ((single * ones({2})).dtype(), f32);
  EXPECT_EQ((ones({2}, {.dtype = i32}) * tensor(3)).dtype(), i32);
  EXPECT_EQ((ones({2}, {.dtype = i32}) * single).dtype(), f64) << "a higher kind";
  EXPECT_EQ((tensor(1.0) * single).dtype(), f64);
}

TEST(Promotion, GradientsComeBackInTheirOwnType) {
  const Tensor narrow = ones({3}, {.dtype = bf16, .requires_grad = true});
  const Tensor wide = full({3}, 0.1, {.dtype = f64, .requires_grad = true});
  (narrow * wide).sum().backward();
  EXPECT_EQ(narrow.grad().dtype(), bf16);
  EXPECT_EQ(wide.grad().dtype(), f64);
  EXPECT_EQ(narrow.grad()[0].item(), static_cast<float>(BFloat16(0.1F)));
}

TEST(Bool, IsLogicalInArithmetic) {
  const Tensor a = tensor({true, true, false});
  const Tensor b = tensor({true, false, false});
  EXPECT_EQ((a + b).to_vector<bool>(), (std::vector<bool>{true, true, false}));
  EXPECT_EQ((a * b).to_vector<bool>(), (std::vector<bool>{true, false, false}));
  EXPECT_EQ(message_of<DTypeError>([&] { a - b; }),
            "sub: not defined for two bools; use logical_xor() or convert with .to(DType::i64)");
  EXPECT_THROW(a.neg(), DTypeError);
}

TEST(Compare, IsBoolOfTheBroadcastShape) {
  const Tensor x = from_data(std::vector<float>{1, 2, NAN, 4, 5, 6}, {2, 3});
  const Tensor row = tensor({2, 2, 2});
  EXPECT_EQ((x > row).to_vector<bool>(), (std::vector<bool>{false, false, false, true, true, true}));
  EXPECT_EQ((x >= row).to_vector<bool>(), (std::vector<bool>{false, true, false, true, true, true}));
  EXPECT_EQ((x < row).to_vector<bool>(), (std::vector<bool>{true, false, false, false, false, false}));
  EXPECT_EQ((x <= 2).to_vector<bool>(), (std::vector<bool>{true, true, false, false, false, false}));
  EXPECT_EQ((x == x).to_vector<bool>(), (std::vector<bool>{true, true, false, true, true, true}));
  EXPECT_EQ((x != 4).to_vector<bool>(), (std::vector<bool>{true, true, true, false, true, true}));
  EXPECT_EQ(isnan(x).t()[2].to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ((full({1}, 200, {.dtype = u8}) < 1000).to_vector<bool>(), std::vector<bool>{true});
  EXPECT_EQ((tensor({1, 2}) < 1.5).to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_FALSE((ones({2}, {.requires_grad = true}) > 0).requires_grad());
}

TEST(Where, TakesFromEither) {
  const Tensor x = tensor({1.0, -2.0, 3.0});
  EXPECT_EQ(where(x > 0, x, 0).to_vector<float>(), (std::vector<float>{1, 0, 3}));
  EXPECT_EQ(where(x > 0, 1.5, tensor({1, 2, 3})).dtype(), f32);
  EXPECT_EQ(x.masked_fill(x < 0, 9).to_vector<float>(), (std::vector<float>{1, 9, 3}));
  EXPECT_EQ(message_of<DTypeError>([&] { where(x, x, x); }),
            "where: the condition must be bool, got f32; compare it: x != 0");
  EXPECT_EQ(message_of<DTypeError>([] { tensor({1}).masked_fill(tensor({true}), 0.5); }),
            "masked_fill: i64 has no place for 0.5");
}

TEST(Where, ABoolTakesTheNumbersThatAreBools) {
  const Tensor x = tensor({true, false, false});
  const Tensor mask = tensor({true, true, false});
  EXPECT_EQ(x.masked_fill(mask, 1).to_vector<bool>(), (std::vector<bool>{true, true, false}));
  EXPECT_EQ(x.masked_fill(mask, 0.0).to_vector<bool>(), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(x.masked_fill(mask, 1).dtype(), boolean);
  EXPECT_EQ(x.clone().masked_fill_(mask, 1).to_vector<bool>(), (std::vector<bool>{true, true, false}));
  EXPECT_EQ(message_of<DTypeError>([&] { x.masked_fill(mask, 2); }), "masked_fill: bool has no place for 2");
}

TEST(Join, TypesArePromoted) {
  const Tensor whole = tensor({1, 2});
  const Tensor real = tensor({0.5, 1.5});
  EXPECT_EQ(cat({whole, real}).dtype(), f32);
  EXPECT_EQ(cat({whole, real}).to_vector<float>(), (std::vector<float>{1, 2, 0.5, 1.5}));
  EXPECT_EQ(cat({real, whole, tensor({2.0}, {.dtype = f64})}).dtype(), f64);
  EXPECT_EQ(cat({tensor({1}, {.dtype = u8}), tensor({true})}).dtype(), u8);
  EXPECT_EQ(cat({real.to(bf16), real.to(f16)}).dtype(), f32);
  EXPECT_EQ(stack({tensor(1), tensor(1.5)}).to_vector<float>(), (std::vector<float>{1, 1.5}));
  EXPECT_EQ(stack({whole, real.to(f64)}).dtype(), f64);
}

TEST(Join, GradientsComeBackInTheirOwnType) {
  const Tensor narrow = ones({2}, {.dtype = bf16, .requires_grad = true});
  const Tensor wide = ones({2}, {.dtype = f64, .requires_grad = true});
  (cat({narrow, tensor({7}), wide}) * tensor({1.0, 2.0, 3.0, 4.0, 5.0})).sum().backward();
  EXPECT_EQ(narrow.grad().dtype(), bf16);
  EXPECT_EQ(narrow.grad().to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(wide.grad().to_vector<double>(), (std::vector<double>{4, 5}));
}

}  // namespace
}  // namespace tandem

#include <tandem/data/preprocessing.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"

namespace tandem {
namespace {

using data::Standardizer;
using test::message_of;

using Values = std::vector<double>;

Tensor table_of_rows(const Values& values, std::int64_t rows) {
  return from_data(values, {rows, static_cast<std::int64_t>(values.size()) / rows});
}

void expect_near(const Tensor& got, const Values& expected, double tolerance) {
  const Values values = got.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], tolerance) << i;
  }
}

TEST(Standardizer, MeasuresEachColumn) {
  const Standardizer scaler = Standardizer::per_column(table_of_rows({1, 10, 2, 20, 3, 60}, 3));
  EXPECT_EQ(scaler.mean().dtype(), DType::f64);
  expect_near(scaler.mean(), {2, 30}, 1e-6);
  expect_near(scaler.std(), {std::sqrt(2.0 / 3), std::sqrt((400.0 + 100 + 900) / 3)}, 1e-5);
}

TEST(Standardizer, TakesRowsFromAnyDeviceAndLeavesThemThere) {
  const Tensor x = table_of_rows({1, 10, 2, 20, 3, 60}, 3).to("cpu:1");
  const Standardizer scaler = Standardizer::per_column(x);
  EXPECT_EQ(scaler.mean().device(), Device("cpu"));
  const Tensor scaled = scaler.apply(x);
  EXPECT_EQ(scaled.device(), x.device());
  EXPECT_EQ(scaler.apply(x.to("cpu")).to_vector<double>(), scaled.to_vector<double>());
  EXPECT_EQ(scaler.invert(scaled).device(), x.device());
  expect_near(scaler.invert(scaled), x.to_vector<double>(), 1e-5);
}

TEST(Standardizer, BringsTheFittedPartToMeanZeroAndDeviationOne) {
  manual_seed(4);
  const Tensor x = randn({500, 3}) * tensor({0.01, 1.0, 300.0}) + tensor({5.0, -2.0, 1000.0});
  const Tensor scaled = Standardizer::per_column(x).apply(x);
  EXPECT_EQ(scaled.dtype(), DType::f32);
  expect_near(scaled.to(DType::f64).mean({0}), {0, 0, 0}, 1e-4);
  expect_near(scaled.to(DType::f64).pow(2).mean({0}), {1, 1, 1}, 1e-4);
}

TEST(Standardizer, AppliesWhatWasFittedToOtherRows) {
  const Standardizer scaler = Standardizer::per_column(table_of_rows({0, 2}, 2));
  expect_near(scaler.apply(table_of_rows({5, 1, -3}, 3)), {4, 0, -4}, 1e-6);
}

TEST(Standardizer, InvertGoesBack) {
  manual_seed(4);
  const Tensor x = randn({50, 3}) * 20 + 7;
  const Standardizer scaler = Standardizer::per_column(x);
  expect_near(scaler.invert(scaler.apply(x)), x.to_vector<double>(), 1e-5);
}

TEST(Standardizer, LeavesItsInputAlone) {
  const Tensor x = table_of_rows({1, 10, 2, 20}, 2).to(DType::f32);
  const Values before = x.to_vector<double>();
  const Standardizer scaler = Standardizer::per_column(x);
  scaler.apply(x);
  scaler.invert(x);
  EXPECT_EQ(x.to_vector<double>(), before);
}

// Sums of 0.1 are not exact: the deviation left by rounding must not become a factor of 10^16.
TEST(Standardizer, OnlyShiftsAConstantColumn) {
  for (const std::int64_t rows : {1, 3, 7, 10, 1000, 100'000}) {
    for (const double value : {0.0, 0.1, -1e-30, 123456.789, 1e30}) {
      const Standardizer scaler = Standardizer::per_column(full({rows, 1}, value, {.dtype = DType::f64}));
      EXPECT_EQ(scaler.std().item(), 1) << rows << " rows of " << value;
      expect_near(scaler.apply(full({1, 1}, value, {.dtype = DType::f64})), {0}, 0);
      expect_near(Standardizer::per_column(full({rows, 1}, value)).apply(full({1, 1}, value)), {0}, 0);
    }
  }
  const Standardizer mixed = Standardizer::per_column(table_of_rows({0.1, 1, 0.1, 2, 0.1, 3}, 3));
  EXPECT_EQ(mixed.std().to_vector<double>()[0], 1);
  EXPECT_NE(mixed.std().to_vector<double>()[1], 1);
}

TEST(Standardizer, SmallSpreadsAreNoConstants) {
  const Standardizer tiny = Standardizer::per_column(table_of_rows({1e-20, 3e-20}, 2));
  expect_near(tiny.apply(table_of_rows({1e-20, 3e-20}, 2)), {-1, 1}, 1e-5);
  const Standardizer offset = Standardizer::per_column(table_of_rows({1000, 1000.5}, 2));
  expect_near(offset.apply(table_of_rows({1000, 1000.5}, 2)), {-1, 1}, 1e-3);
}

TEST(Standardizer, ASpreadThatF32CannotHoldIsNone) {
  const Standardizer scaler = Standardizer::per_column(table_of_rows({1e-60, 3e-60}, 2));
  for (const double x : scaler.apply(table_of_rows({1e-60, 3e-60}, 2)).to_vector<double>()) {
    EXPECT_TRUE(std::isfinite(x));
  }
}

TEST(Standardizer, OfAllMeasuresEverythingTogether) {
  const Tensor images = from_data(std::vector<std::uint8_t>{0, 0, 255, 255, 0, 255, 0, 255}, {2, 2, 2});
  const Standardizer scaler = Standardizer::of_all(images);
  EXPECT_EQ(scaler.mean().dim(), 0);
  EXPECT_EQ(scaler.mean().item(), 127.5);
  EXPECT_EQ(scaler.std().item(), 127.5);
  const Tensor scaled = scaler.apply(images);
  EXPECT_EQ(scaled.shape(), images.shape());
  expect_near(scaled, {-1, -1, 1, 1, -1, 1, -1, 1}, 1e-6);
  EXPECT_EQ(Standardizer::of_all(full({3}, 0.1)).std().item(), 1);
}

// The spread of dates and identifiers is below the last digit of an f32.
TEST(Standardizer, LargeOffsetsTakeNoDigitsWithThem) {
  const Tensor dates = (arange(1000, {.dtype = DType::f64}) * 3 + 1.6e9).reshape({1000, 1});
  const Standardizer scaler = Standardizer::per_column(dates);
  const double std = 3 * std::sqrt((1e6 - 1) / 12);
  expect_near(scaler.apply(dates)[0], {-499.5 * 3 / std}, 1e-12);
  expect_near(scaler.apply(dates)[999], {499.5 * 3 / std}, 1e-12);
  EXPECT_EQ(scaler.apply(dates).dtype(), DType::f64);
  expect_near(scaler.invert(scaler.apply(dates))[7], {1.6e9 + 21}, 1e-6);
}

TEST(Standardizer, GradientsPass) {
  const Standardizer scaler = Standardizer::per_column(table_of_rows({0, 10, 4, 30}, 2));
  const Tensor x = ones({1, 2}, {.requires_grad = true});
  scaler.apply(x).sum().backward();
  expect_near(x.grad(), {1 / 2.0, 1 / 10.0}, 1e-7);
  x.zero_grad();
  scaler.invert(x).sum().backward();
  expect_near(x.grad(), {2, 10}, 1e-6);
}

TEST(Standardizer, ValuesThatAreNotFiniteAreNamed) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(message_of<ValueError>([] { Standardizer::per_column(table_of_rows({1, 2, 3, 4, 5, std::nan("")}, 2)); }),
            "Standardizer: the value at row 1, column 2 is nan");
  EXPECT_EQ(message_of<ValueError>([] { Standardizer::per_column(table_of_rows({1, -kInf, 3, 4}, 2)); }),
            "Standardizer: the value at row 0, column 1 is -inf");
  EXPECT_EQ(message_of<ValueError>([] { Standardizer::of_all(from_data(Values{1, kInf})); }),
            "Standardizer: the value at row 1, column 0 is inf");
}

TEST(Standardizer, WrongShapesAreErrors) {
  EXPECT_EQ(message_of<ShapeError>([] { Standardizer::per_column(zeros({3})); }),
            "Standardizer: expected [rows, columns] with at least one row, got [3]");
  EXPECT_THROW(Standardizer::per_column(zeros({0, 3})), ShapeError);
  EXPECT_EQ(message_of<ShapeError>([] { Standardizer::of_all(zeros({0})); }),
            "Standardizer: [0] has no elements to measure");
  const Standardizer scaler = Standardizer::per_column(zeros({3, 2}));
  EXPECT_THROW(scaler.apply(zeros({3, 5})), ShapeError);
  EXPECT_THROW(scaler.invert(zeros({3, 5})), ShapeError);
  EXPECT_EQ(Standardizer::per_column(zeros({3, 0})).mean().numel(), 0);
}

}  // namespace
}  // namespace tandem

#include <tandem/data/preprocessing.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"

namespace tandem {
namespace {

using data::Imputer;
using test::message_of;
using Values = std::vector<double>;

Tensor table(const Values& values, std::int64_t columns, DType dtype = DType::f64) {
  return from_data(values, {static_cast<std::int64_t>(values.size()) / columns, columns}).to(dtype);
}

TEST(Imputer, FillsInTheMeanOfWhatIsThere) {
  const Tensor x = table({1, NAN, 3, 8, NAN, 4}, 2);
  const Imputer imputer = Imputer::mean(x);
  EXPECT_EQ(imputer.fill().to_vector<double>(), (Values{2, 6}));
  EXPECT_EQ(imputer.apply(x).to_vector<double>(), (Values{1, 6, 3, 8, 2, 4}));
  EXPECT_TRUE(std::isnan(x.to_vector<double>()[1])) << "the argument is left alone";
}

TEST(Imputer, TheMedianOfAnEvenCountIsBetweenTheMiddleTwo) {
  EXPECT_EQ(Imputer::median(table({9, 1, 2, NAN}, 1)).fill().item(), 2);
  EXPECT_EQ(Imputer::median(table({9, 1, NAN, 2, 3}, 1)).fill().item(), 2.5);
  EXPECT_EQ(Imputer::median(table({7}, 1)).fill().item(), 7);
}

TEST(Imputer, UsesWhatItWasFittedOn) {
  const Imputer imputer = Imputer::median(table({1, 2, 3}, 1));
  EXPECT_EQ(imputer.apply(table({NAN, 100}, 1)).to_vector<double>(), (Values{2, 100}));
}

TEST(Imputer, FillsInAConstant) {
  const Tensor filled = Imputer::constant(-1).apply(table({NAN, 2, 3, NAN}, 2, DType::f32));
  EXPECT_EQ(filled.dtype(), DType::f32);
  EXPECT_EQ(filled.to_vector<double>(), (Values{-1, 2, 3, -1}));
}

TEST(Imputer, KeepsDeviceAndTakesViewsAndEmptyTables) {
  const Tensor x = table({1, NAN, 3, 8}, 2).t().to("cpu:1");
  const Tensor filled = Imputer::constant(0).apply(x);
  EXPECT_EQ(filled.device(), Device("cpu:1"));
  EXPECT_EQ(filled.to_vector<double>(), (Values{1, 3, 0, 8}));
  EXPECT_EQ(Imputer::constant(0).apply(zeros({0, 3})).shape(), (Shape{0, 3}));
}

TEST(Imputer, HugeNumbersHaveAMean) {
  EXPECT_DOUBLE_EQ(Imputer::mean(table({1e308, 1e308, 1e308}, 1)).fill().item(), 1e308);
  EXPECT_DOUBLE_EQ(Imputer::median(table({1e308, 1.5e308}, 1)).fill().item(), 1.25e308);
}

TEST(Imputer, WrongUseIsAnError) {
  EXPECT_EQ(message_of<ValueError>([] { Imputer::mean(table({1, NAN, 2, NAN}, 2)); }),
            "Imputer: column 1 has no value in any of the 2 rows; remove the column");
  EXPECT_EQ(message_of<ValueError>([] { Imputer::median(table({1, 2, INFINITY, 3}, 2)); }),
            "Imputer: the value at row 1, column 0 is inf");
  EXPECT_EQ(message_of<ShapeError>([] { Imputer::mean(zeros({3})); }), "Imputer: expected [rows, columns], got [3]");
  EXPECT_EQ(message_of<ShapeError>([] { Imputer::mean(zeros({2, 3})).apply(zeros({2, 2})); }),
            "Imputer: fitted on 3 columns, got [2, 2]");
  EXPECT_EQ(message_of<ConfigError>([] { Imputer::constant(NAN); }),
            "Imputer: the constant is nan; expected a finite number");
  EXPECT_THROW(Imputer::constant(0).apply(zeros({1, 1}, {.dtype = DType::i64})), DTypeError);
}

}  // namespace
}  // namespace tandem

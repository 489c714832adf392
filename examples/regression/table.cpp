#include "table.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <Eigen/Dense>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/data/categories.h>
#include <tandem/data/csv.h>
#include <tandem/data/dataset.h>
#include <tandem/data/preprocessing.h>
#include <tandem/tensor/factories.h>

#include "common/data_file.h"

namespace example {

using namespace tandem;

namespace {

constexpr double kTestFraction = 0.2;
constexpr std::int64_t kFewestRows = 5;  // enough for one test row
constexpr double kLargest = 1e18;        // its square still fits into f32
constexpr double kSkewed = 2;            // columns of counts more skewed than this are replaced by their logarithm

// The values that are not missing.
std::vector<double> known(const Tensor& column) {
  std::vector<double> values = column.to_vector<double>();
  std::erase_if(values, [](double value) { return std::isnan(value); });
  return values;
}

double skewness(const std::vector<double>& values) {
  double mean = 0;
  for (const double v : values) {
    mean += v / static_cast<double>(values.size());
  }
  double second = 0;
  double third = 0;
  for (const double v : values) {
    second += (v - mean) * (v - mean);
    third += (v - mean) * (v - mean) * (v - mean);
  }
  const double n = static_cast<double>(values.size());
  return second > 0 ? (third / n) / std::pow(second / n, 1.5) : 0;
}

Tensor numeric_feature(const data::CsvTable& table, const std::string& name, const data::Split& split) {
  const Tensor column = data::to_tensor(table, {name}, DType::f64);
  const Tensor train = column.index_select(0, split.train);
  const std::vector<double> there = known(train);
  check<IoError>(!there.empty(), "{}: column '{}' has no value in the training part; remove the column", table.source(),
                 name);
  Tensor filled = data::Imputer::median(train).apply(column);
  if (*std::min_element(there.begin(), there.end()) >= 0 && skewness(there) > kSkewed) {
    for (double& value : filled.mutable_span<double>()) {
      value = std::log1p(std::max(value, 0.0));
    }
  }
  return filled;
}

Eigen::MatrixXd with_ones(const Tensor& x) {
  const Tensor values = x.to(DType::f64).contiguous();
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Eigen::MatrixXd result(x.size(0), x.size(1) + 1);
  result << Eigen::Map<const RowMajor>(values.data<double>(), x.size(0), x.size(1)), Eigen::VectorXd::Ones(x.size(0));
  return result;
}

Eigen::VectorXd as_vector(const Tensor& y) {
  const Tensor values = y.to(DType::f64).contiguous();
  return Eigen::Map<const Eigen::VectorXd>(values.data<double>(), values.numel());
}

// Training runs in f32, whose range is smaller, and needs every target.
void check_numbers(const data::CsvTable& table, const std::string& target) {
  for (const std::string& name : table.column_names()) {
    if (name != target && !table.is_numeric(name)) {
      continue;
    }
    const std::span<const double> values = table.numeric(name);
    for (std::int64_t row = 0; row < table.num_rows(); ++row) {
      const double value = values[static_cast<std::size_t>(row)];
      check<IoError>(name != target || !std::isnan(value),
                     "{}:{}: the target '{}' is missing; fill it in or remove the row", table.source(),
                     table.line_of_row(row), target);
      check<IoError>(!(std::abs(value) > kLargest),
                     "{}:{}: column '{}': {} is too large, at most {:g} can be computed with", table.source(),
                     table.line_of_row(row), name, value, kLargest);
    }
  }
}

}  // namespace

RegressionData load_table(const std::string& path, const std::string& target, std::uint64_t seed) {
  const bool bundled = path.empty();
  const std::string file = bundled ? data_file("housing.csv.gz") : path;
  const data::CsvTable table = data::read_csv(file, {.header = data::Header::yes, .missing = data::Missing::keep_nan});
  table.numeric(target);  // throws unless the column exists and holds numbers
  check_numbers(table, target);
  check<ConfigError>(table.num_columns() >= 2, "{}: there is no column but the target '{}' to predict it from", file,
                     target);
  check<IoError>(table.num_rows() >= kFewestRows,
                 "{}: too few rows ({}): a fifth is kept for testing; expected {} or more", file, table.num_rows(),
                 kFewestRows);

  const data::Split split = data::random_split(table.num_rows(), kTestFraction, seed);
  const std::vector<std::int64_t> train_rows = split.train.to_vector<std::int64_t>();
  std::vector<Tensor> features;
  std::vector<std::string> categories;
  for (const std::string& name : table.column_names()) {
    if (name == target) {
      continue;
    }
    if (table.is_numeric(name)) {
      features.push_back(numeric_feature(table, name, split));
    } else {
      const auto kinds = data::Categories::of(table, name, train_rows, {.unseen = data::Unseen::ignore});
      categories.push_back(fmt::format("'{}' ({})", name, kinds.size()));
      features.push_back(data::to_tensor(kinds.encode(table, name)).to(DType::f64));
    }
  }
  const Tensor x = cat(features, 1);
  const Tensor y = data::to_tensor(table, {target}, DType::f64);
  RegressionData result{.name = bundled ? "California housing, 1990" : path,
                        .target = target,
                        .categories = fmt::format("{}", fmt::join(categories, ", ")),
                        .train_x = x.index_select(0, split.train),
                        .train_y = y.index_select(0, split.train),
                        .test_x = x.index_select(0, split.test),
                        .test_y = y.index_select(0, split.test)};
  const auto scaler = data::Standardizer::per_column(result.train_x);
  result.train_x = scaler.apply(result.train_x).to(DType::f32);
  result.test_x = scaler.apply(result.test_x).to(DType::f32);
  return result;
}

double least_squares_rmse(const RegressionData& data) {
  // One-hot columns add up to the column of ones, so the matrix lacks full rank. This decomposition handles that.
  const Eigen::VectorXd solution =
      with_ones(data.train_x).completeOrthogonalDecomposition().solve(as_vector(data.train_y));
  const Eigen::VectorXd error = with_ones(data.test_x) * solution - as_vector(data.test_y);
  return std::sqrt(error.squaredNorm() / static_cast<double>(error.size()));
}

}  // namespace example

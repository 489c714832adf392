#include <tandem/data/csv.h>

#include <algorithm>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/error.h>
#include <tandem/core/thread_state.h>
#include <tandem/data/diagnostics.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

namespace {

// A table with a single column may have another delimiter, found in the column's name.
std::string delimiter_hint(const std::vector<std::string>& names) {
  if (names.size() == 1) {
    for (const char delimiter : {';', '\t', '|', ','}) {
      if (names.front().find(delimiter) != std::string::npos) {
        return fmt::format("; is CsvOptions::delimiter '{}'?", delimiter == '\t' ? "\\t" : std::string(1, delimiter));
      }
    }
  }
  return "";
}

}  // namespace

CsvTable::CsvTable(std::string source, std::vector<CsvColumn> columns, std::vector<std::int64_t> line_of_row,
                   std::int64_t num_dropped_rows)
    : source_(std::move(source)),
      columns_(std::move(columns)),
      lines_(std::move(line_of_row)),
      num_dropped_rows_(num_dropped_rows) {
  for (const CsvColumn& column : columns_) {
    const std::size_t values = column.numeric ? column.numbers.size() : column.texts.size();
    check<ConfigError>(values == lines_.size(), "{}: column {} has {} values for {} rows", source_, column.name, values,
                       lines_.size());
    names_.push_back(column.name);
  }
}

std::size_t CsvTable::column_index(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    const std::string nearest = core::nearest(name, names_);
    fail<ConfigError>("{}: there is no column {}{}; the columns are {}{}", source_, excerpt(name),
                      nearest.empty() ? "" : fmt::format(" (did you mean {}?)", excerpt(nearest)), list_of(names_),
                      delimiter_hint(names_));
  }
  return static_cast<std::size_t>(found - names_.begin());
}

const CsvColumn& CsvTable::column(std::size_t index) const {
  if (index >= columns_.size()) [[unlikely]] {
    fail<ConfigError>("{}: there is no column {}; the columns are 0 to {}: {}", source_, index, num_columns() - 1,
                      list_of(names_));
  }
  return columns_[index];
}

std::span<const double> CsvTable::numeric(std::size_t index) const {
  const CsvColumn& c = column(index);
  if (!c.numeric) [[unlikely]] {
    fail<IoError>("{}:{}:{}: column {} holds text where numbers are due: {} [TDM-E506]", source_, c.first_text.line,
                  c.first_text.column, excerpt(c.name), c.first_text_excerpt);
  }
  return c.numbers;
}

std::span<const std::string> CsvTable::text(std::size_t index) const {
  const CsvColumn& c = column(index);
  if (c.numeric) [[unlikely]] {
    fail<ConfigError>(
        "{}: column {} holds numbers, not text; read it with numeric(), or name it in CsvOptions::text_columns",
        source_, excerpt(c.name));
  }
  return c.texts;
}

std::int64_t CsvTable::line_of_row(std::int64_t row) const {
  check<ConfigError>(row >= 0 && row < num_rows(), "{}: there is no row {}; rows are 0 to {}", source_, row,
                     num_rows() - 1);
  return lines_[static_cast<std::size_t>(row)];
}

Tensor to_tensor(const CsvTable& table, const std::vector<std::string>& columns, DType dtype) {
  check<DTypeError>(is_floating_point(dtype), "to_tensor: columns are numbers with fractions, which {} has not", dtype);
  const auto width = static_cast<std::int64_t>(columns.size());
  Tensor result = empty({table.num_rows(), width}, {.dtype = DType::f64, .device = "cpu"});
  double* out = result.mutable_data<double>();
  for (std::int64_t c = 0; c < width; ++c) {
    std::int64_t row = 0;
    for (const double value : table.numeric(columns[static_cast<std::size_t>(c)])) {
      out[row++ * width + c] = value;
    }
  }
  return result.to(dtype).to(core::thread_state().device);
}

Tensor to_tensor(const OneHot& column) {
  const auto width = static_cast<std::int64_t>(column.categories.size());
  Tensor result = zeros({static_cast<std::int64_t>(column.indices.size()), width}, {.device = "cpu"});
  float* out = result.mutable_data<float>();
  for (std::size_t row = 0; row < column.indices.size(); ++row) {
    if (column.indices[row] >= 0) {
      out[static_cast<std::int64_t>(row) * width + column.indices[row]] = 1;
    }
  }
  return result.to(core::thread_state().device);
}

}  // namespace tandem::inline v0::data

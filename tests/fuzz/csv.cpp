#include <tandem/data/csv.h>

#include <string_view>

#include "fuzz/promises.h"
#include "fuzz/targets.h"

namespace tandem::fuzz {

namespace {

// Corpus files start with a letter that encodes options: 'A' for the defaults, plus the bits below. The limits are
// small, so that short inputs reach them.
data::CsvOptions options_of(std::uint8_t letter) {
  constexpr std::uint8_t kFirst = 'A';
  constexpr data::Missing kMissing[] = {data::Missing::error, data::Missing::keep_nan, data::Missing::drop_row,
                                        data::Missing::keep_nan};
  constexpr data::Header kHeader[] = {data::Header::detect, data::Header::yes, data::Header::no, data::Header::yes};
  const unsigned bits = static_cast<std::uint8_t>(letter - kFirst);
  return {.delimiter = (bits & 16U) != 0 ? '\t' : ',',
          .header = kHeader[(bits >> 2U) & 3U],
          .missing = kMissing[bits & 3U],
          .max_field_bytes = 256,
          .max_columns = 64};
}

void check_table(const data::CsvTable& table) {
  const auto rows = static_cast<std::size_t>(table.num_rows());
  promise(rows > 0 && table.num_columns() > 0, "a table has rows and columns");
  for (std::size_t i = 0; i < table.column_names().size(); ++i) {
    promise(table.column_index(table.column_names()[i]) == i, "names are unique");
    if (table.is_numeric(i)) {
      promise(table.numeric(i).size() == rows, "a column has a number per row");
    } else {
      promise(table.text(i).size() == rows, "a column has a text per row");
      const data::OneHot column = data::one_hot(table, table.column_names()[i], 100);
      promise(column.indices.size() == rows, "a column has a class per row");
    }
  }
  promise(table.line_of_row(0) >= 1 && table.line_of_row(table.num_rows() - 1) >= table.num_rows(),
          "rows have lines, in order");
}

}  // namespace

void csv(Bytes input) {
  if (input.empty()) {
    return;
  }
  const data::CsvOptions options = options_of(input[0]);
  const std::string_view text(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  check_promises(text.size(), [&] { check_table(data::parse_csv(text, "a.csv", options)); });
}

}  // namespace tandem::fuzz

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/data/csv.h>

// Short random texts, and all that a reader finds in them.

namespace tandem::test {

/// Up to `most` lines of a table, of which one in `odd` is replaced by a piece of something else.
inline std::string random_csv(std::mt19937_64& random, std::size_t most, std::size_t odd) {
  static const std::vector<std::string> pieces{"1",  "-2.5", "0",  "1e9", "1e999", "x",  "N",    "NA",
                                               "7",  "inf",  ".5", ",",   ",",     ",",  ",",    ";",
                                               "\t", " ",    "\"", "\n",  "\n",    "\n", "\n",   "\r\n",
                                               "\r", "",     "ab", "-",   "+3",    "e5", "\"\"", "longer text"};
  std::string text = random() % 2 == 0 ? "a,b\n" : "";
  for (std::size_t i = random() % most; i > 0; --i) {
    text += random() % odd != 0 ? "1,2\n" : pieces[random() % pieces.size()];
  }
  return text;
}

inline data::CsvOptions random_csv_options(std::mt19937_64& random) {
  return {.delimiter = random() % 8 == 0 ? '\t' : ',',
          .header = static_cast<data::Header>(random() % 3),
          .missing = static_cast<data::Missing>(random() % 3),
          .missing_names = random() % 2 == 0 ? std::vector<std::string>{"NA", "7"} : std::vector<std::string>{},
          .text_columns = random() % 8 == 0 ? std::vector<std::string>{"a"} : std::vector<std::string>{},
          .max_field_bytes = 8,
          .max_columns = 3};
}

/// All values, lines and places of a table, or the text of the error.
inline std::string description_of(const std::function<data::CsvTable()>& read) {
  try {
    const data::CsvTable table = read();
    std::string description = fmt::format("{} dropped;", table.num_dropped_rows());
    for (std::size_t i = 0; i < table.column_names().size(); ++i) {
      const data::CsvColumn& column = table.column(i);
      description += fmt::format(" {} {}:{} {};", column.name, column.first_text.line, column.first_text.column,
                                 column.first_text_excerpt);
      for (std::int64_t row = 0; row < table.num_rows(); ++row) {
        const auto at = static_cast<std::size_t>(row);
        description += fmt::format(" {}", table.line_of_row(row)) +
                       (column.numeric ? fmt::format(" {:x}", std::bit_cast<std::uint64_t>(column.numbers[at]))
                                       : " '" + column.texts[at] + "'");
      }
    }
    return description;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace tandem::test

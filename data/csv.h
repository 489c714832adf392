#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::data {

/// Whether the first row holds the column names.
enum class Header : std::uint8_t {
  detect,  // yes if it has text and no number, no if it has numbers and no text; IoError if it has both
  yes,
  no,
};

/// What to do with a field that is empty or one of CsvOptions::missing_names, in any column.
enum class Missing : std::uint8_t {
  error,     // IoError at the first one
  keep_nan,  // NaN in a numeric column, an empty string in a text column
  drop_row,  // leave the whole row out
};

/// How read_csv() understands a file, and where it gives up.
struct CsvOptions {
  char delimiter = ',';              // between fields
  Header header = Header::detect;    // whether there are names
  Missing missing = Missing::error;  // what to do with missing values
  /// Compared as written, blanks around the field removed. An empty field is always missing.
  std::vector<std::string> missing_names = {"NA",  "N/A",  "#N/A", "n/a",  "<NA>", "NaN",
                                            "nan", "NULL", "null", "None", "?"};
  /// Names of columns to take as text whatever they hold: codes, years or labels that are no quantities.
  std::vector<std::string> text_columns = {};
  std::int64_t max_bytes = std::int64_t{4} << 30;      // largest file accepted, after unpacking
  std::size_t max_field_bytes = std::size_t{1} << 20;  // an unclosed quote is found before it eats the file
  std::size_t max_columns = std::size_t{1} << 16;      // most fields in a row
};

/// Where a field starts: 1-based line, and byte in that line.
struct CsvPlace {
  std::int64_t line = 0;    // 1-based; 0: nowhere
  std::int64_t column = 0;  // 1-based, in bytes
};

/// One column of a table.
struct CsvColumn {
  std::string name;                // from the header
  bool numeric = false;            // numbers, not texts
  std::vector<double> numbers;     // one per row, if numeric
  std::vector<std::string> texts;  // one per row, if not
  CsvPlace first_text;             // if not numeric, the first field that is no number (or the first of text_columns)
  std::string first_text_excerpt;  // its text in quotes, shortened
};

/// A table of named columns, all of one length. A column is numeric when each of its fields that is not missing is a
/// finite number, else it holds text. Columns go by name or by 0-based position; ConfigError for one that is not there
/// (the message lists those that are).
class TANDEM_API CsvTable {
 public:
  /// `line_of_row` has the line of each row, in order. Readers make tables; constructing one by hand is for tests.
  CsvTable(std::string source, std::vector<CsvColumn> columns, std::vector<std::int64_t> line_of_row,
           std::int64_t num_dropped_rows);

  /// Rows, the header and dropped ones not counted.
  std::int64_t num_rows() const noexcept { return static_cast<std::int64_t>(lines_.size()); }
  /// Columns, of any kind.
  std::int64_t num_columns() const noexcept { return static_cast<std::int64_t>(names_.size()); }
  /// In file order. Without a header, and for an empty name in it: "column_0", "column_1", ... by position.
  const std::vector<std::string>& column_names() const noexcept { return names_; }
  /// 0-based position of a column.
  std::size_t column_index(std::string_view name) const;
  /// A column by its position.
  const CsvColumn& column(std::size_t index) const;

  /// Whether a column holds numbers.
  bool is_numeric(std::string_view name) const { return is_numeric(column_index(name)); }
  bool is_numeric(std::size_t index) const { return column(index).numeric; }

  /// The numbers of a column, [num_rows]. Throws IoError for a text column, with file, line:column and the first text.
  /// Valid as long as the table.
  std::span<const double> numeric(std::string_view name) const { return numeric(column_index(name)); }
  std::span<const double> numeric(std::size_t index) const;

  /// The strings of a text column, [num_rows], blanks around unquoted ones removed. Throws ConfigError for a numeric
  /// column. Valid as long as the table.
  std::span<const std::string> text(std::string_view name) const { return text(column_index(name)); }
  std::span<const std::string> text(std::size_t index) const;

  /// 1-based line of the file on which a row starts, for messages. `row` is in [0, num_rows).
  std::int64_t line_of_row(std::int64_t row) const;
  /// Rows left out by Missing::drop_row.
  std::int64_t num_dropped_rows() const noexcept { return num_dropped_rows_; }
  /// The path, or the name given to parse_csv, for messages.
  const std::string& source() const noexcept { return source_; }

 private:
  std::string source_;
  std::vector<CsvColumn> columns_;
  std::vector<std::string> names_;
  std::vector<std::int64_t> lines_;
  std::int64_t num_dropped_rows_;
};

/// Reads comma-separated values, plain or gzip-compressed (told by content, not by name).
///
/// The format is RFC 4180: fields in double quotes may hold delimiters, line ends and doubled quotes. Lines end with
/// LF, CRLF or CR; the last may lack its end; blank lines at the end of the file are ignored, as is a UTF-8 byte order
/// mark. Blanks around fields are not part of them. Numbers are decimal with a point, whatever the locale: "-1", "+.5",
/// "1e-3"; hexadecimal is text.
///
/// Memory: the unpacked file, 8 bytes per number, a std::string per text, and 8 bytes per row.
///
/// Throws IoError that names the file, and line:column where there is one: missing, empty, too large or corrupt file;
/// a row with more or fewer fields than the first; a quote inside an unquoted field, text after a closing quote, a
/// quote that is never closed; a NUL byte; a column name used twice; a missing value (see Missing); a number that is
/// infinite or does not fit into a double, in a column without text; no rows; a field or row beyond the limits. Throws
/// ConfigError for a delimiter that cannot be one, and for text_columns that are not there.
TANDEM_API CsvTable read_csv(const std::string& path, const CsvOptions& options = {});

/// The same for text already in memory, not compressed. `name` stands for the path in errors.
TANDEM_API CsvTable parse_csv(std::string_view text, const std::string& name, const CsvOptions& options = {});

/// A text column as class indices, which is what one-hot encoding starts from.
struct OneHot {
  std::vector<std::string> categories;  // the texts, by index
  std::vector<std::int64_t> indices;    // [num_rows], into categories; -1 for none of them
};

/// The different texts of a column and where they are: Categories (categories.h) fitted on all rows. Throws what
/// Categories::of throws.
TANDEM_API OneHot one_hot(const CsvTable& table, std::string_view column, std::int64_t max_categories = 1000);

}  // namespace tandem::inline v0::data

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::data {

/// Whether the first row holds the column names.
enum class Header : std::uint8_t {
  detect,  // yes if the row has text and no number, no if it has numbers and no text, IoError if it has both
  yes,
  no,
};

/// The treatment of a field that is empty or one of CsvOptions::missing_names, in any column.
enum class Missing : std::uint8_t {
  error,     // throw IoError at the first one
  keep_nan,  // NaN in a numeric column, an empty string in a text column
  drop_row,  // omit the whole row
};

/// Format and limits of read_csv().
struct CsvOptions {
  char delimiter = ',';              // separates fields
  Header header = Header::detect;    // whether the first row holds names
  Missing missing = Missing::error;  // treatment of missing values
  /// Texts that count as missing, compared after removal of surrounding blanks. An empty field is always missing.
  std::vector<std::string> missing_names = {"NA",  "N/A",  "#N/A", "n/a",  "<NA>", "NaN",
                                            "nan", "NULL", "null", "None", "?"};
  /// Names of columns to read as text even if they hold numbers: codes, years or labels that are not quantities.
  std::vector<std::string> text_columns = {};
  std::int64_t max_bytes = std::int64_t{4} << 30;      // largest accepted file, after unpacking
  std::size_t max_field_bytes = std::size_t{1} << 20;  // stops an unclosed quote before it consumes the whole file
  std::size_t max_columns = std::size_t{1} << 16;      // largest number of fields in a row
};

/// The start of a field: 1-based line, and byte in that line.
struct CsvPlace {
  std::int64_t line = 0;    // 1-based; 0 means no place
  std::int64_t column = 0;  // 1-based, in bytes
};

/// One column of a table.
struct CsvColumn {
  std::string name;                // from the header, or made from the position
  bool numeric = false;            // true for numbers, false for texts
  std::vector<double> numbers;     // one per row, if numeric
  std::vector<std::string> texts;  // one per row, if not numeric
  CsvPlace first_text;             // if not numeric: first field that is not a number, or first of text_columns
  std::string first_text_excerpt;  // text of that field, quoted and shortened
};

/// A table of named columns of equal length. A column is numeric if every field that is not missing is a finite number;
/// otherwise it holds text. Columns are selected by name or 0-based position. A column that does not exist is a
/// ConfigError, whose message lists the existing ones.
class TANDEM_API CsvTable {
 public:
  /// `line_of_row` holds the line of each row, in order. Readers make tables; tests may construct one directly.
  CsvTable(std::string source, std::vector<CsvColumn> columns, std::vector<std::int64_t> line_of_row,
           std::int64_t num_dropped_rows);

  /// Number of rows, without the header and dropped rows.
  std::int64_t num_rows() const noexcept { return static_cast<std::int64_t>(lines_.size()); }
  /// Number of columns of both kinds.
  std::int64_t num_columns() const noexcept { return static_cast<std::int64_t>(names_.size()); }
  /// The names in file order. Without a header, or for an empty name, a column is called "column_0", "column_1", ... by
  /// position.
  const std::vector<std::string>& column_names() const noexcept { return names_; }
  /// 0-based position of a column.
  std::size_t column_index(std::string_view name) const;
  /// A column by its position.
  const CsvColumn& column(std::size_t index) const;

  /// Whether a column holds numbers.
  bool is_numeric(std::string_view name) const { return is_numeric(column_index(name)); }
  bool is_numeric(std::size_t index) const { return column(index).numeric; }

  /// The numbers of a column, [num_rows]. Throws IoError for a text column, with file, line:column and the first text.
  /// The span is valid as long as the table.
  std::span<const double> numeric(std::string_view name) const { return numeric(column_index(name)); }
  std::span<const double> numeric(std::size_t index) const;

  /// The strings of a text column, [num_rows]; blanks around unquoted strings are removed. Throws ConfigError for a
  /// numeric column. The span is valid as long as the table.
  std::span<const std::string> text(std::string_view name) const { return text(column_index(name)); }
  std::span<const std::string> text(std::size_t index) const;

  /// The 1-based line of the file on which a row starts, for messages. `row` must be in [0, num_rows).
  std::int64_t line_of_row(std::int64_t row) const;
  /// Number of rows omitted by Missing::drop_row.
  std::int64_t num_dropped_rows() const noexcept { return num_dropped_rows_; }
  /// The path, or the name passed to parse_csv(), for messages.
  const std::string& source() const noexcept { return source_; }

 private:
  std::string source_;
  std::vector<CsvColumn> columns_;
  std::vector<std::string> names_;
  std::vector<std::int64_t> lines_;
  std::int64_t num_dropped_rows_;
};

/// Reads comma-separated values, plain or gzip-compressed (recognised by content, not by name).
///
/// The format is RFC 4180: fields in double quotes may contain delimiters, line ends and doubled quotes. Lines end with
/// LF, CRLF or CR; the last line may lack its end. Blank lines at the end of the file and a UTF-8 byte order mark are
/// ignored. Blanks around fields are removed. Numbers are decimal with a point in every locale: "-1", "+.5", "1e-3".
/// Hexadecimal numbers count as text.
///
/// Memory: 8 bytes per number, a std::string per text, 8 bytes per row, and the unpacked file. A large plain file
/// without quotes is read in pieces on all threads, twice, and is never in memory as a whole.
///
/// Throws IoError with the file, and line:column where known, for: a missing, empty, too large or corrupt file; a row
/// with more or fewer fields than the first; a quote inside an unquoted field, text after a closing quote, an unclosed
/// quote; a NUL byte; a repeated column name; a missing value (see Missing); a number that is infinite or does not fit
/// into a double, in a column without text; a file without rows, or one that changes while it is read; a field or row
/// beyond the limits. Throws ConfigError for an unusable delimiter and for text_columns that do not exist.
TANDEM_API CsvTable read_csv(const std::string& path, const CsvOptions& options = {});

/// read_csv() for uncompressed text in memory. `name` stands for the path in errors.
TANDEM_API CsvTable parse_csv(std::string_view text, const std::string& name, const CsvOptions& options = {});

/// A text column as class indices, the input of one-hot encoding.
struct OneHot {
  std::vector<std::string> categories;  // the texts, by index
  std::vector<std::int64_t> indices;    // [num_rows], into categories; -1 for a text outside the categories
};

/// The distinct texts of a column and their positions: Categories (categories.h) collected from all rows. Throws the
/// errors of Categories::of().
TANDEM_API OneHot one_hot(const CsvTable& table, std::string_view column, std::int64_t max_categories = 1000);

/// Joins numeric columns to [rows, columns] of f32 or f64. f64 keeps every digit of the file, which large offsets
/// (dates, identifiers) need until they are standardized. Throws the errors of CsvTable::numeric().
TANDEM_API Tensor to_tensor(const CsvTable& table, const std::vector<std::string>& columns, DType dtype = DType::f32);

/// Converts a text column to one-hot f32 [rows, categories]. A row with index -1 is all zeros.
TANDEM_API Tensor to_tensor(const OneHot& column);

}  // namespace tandem::inline v0::data

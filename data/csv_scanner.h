#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/data/csv.h>

// Internal: the grammar of RFC 4180. Knows nothing of headers, numbers and missing values.

namespace tandem::inline v0::data {

/// A field as a piece of the file: without its quotes, blanks around it removed if it has none.
struct CsvField {
  std::string_view text;
  bool has_doubled_quotes = false;  // "" inside stands for one quote

  /// With doubled quotes undone.
  std::string value() const;
};

/// Cuts a text into rows of fields. Copies nothing: fields stay valid as long as the text. Every error names the
/// source, line and column.
class CsvScanner {
 public:
  CsvScanner(std::string_view text, const std::string& source, const CsvOptions& options);

  /// Puts the next row into `fields`, at least one; false at the end of the text.
  bool next_row(std::vector<CsvField>& fields);

  /// Of the row read last: the line where it starts, and its text without the line end.
  std::int64_t line() const noexcept { return line_; }
  std::string_view row() const noexcept;
  /// Places in the row read last: where one of its fields starts (after its quote, if it has one), and its end.
  CsvPlace place(const CsvField& field) const { return place(std::to_address(field.text.begin())); }
  CsvPlace end_of_row() const { return place(row_end_); }

 private:
  CsvPlace place(const char* position) const;
  CsvField read_field();
  CsvField read_quoted(const char* quote);
  const char* skip_blanks(const char* position) const;
  bool is_blank(char c) const { return (c == ' ' || c == '\t') && c != delimiter_; }

  const std::string& source_;
  char delimiter_;
  std::size_t max_field_bytes_;
  std::size_t max_columns_;
  std::array<bool, 256> ends_unquoted_{};  // bytes that stop the scan of an unquoted field

  const char* cursor_ = nullptr;
  const char* end_ = nullptr;
  const char* row_begin_ = nullptr;
  const char* row_end_ = nullptr;
  std::int64_t line_ = 0;
  std::int64_t next_line_ = 1;
  bool row_has_quotes_ = false;
};

}  // namespace tandem::inline v0::data

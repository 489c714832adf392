#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/data/csv.h>

// Internal: the grammar of RFC 4180, without headers, numbers and missing values.

namespace tandem::inline v0::data {

/// A field as a part of the file: without its quotes, or, if unquoted, without surrounding blanks.
struct CsvField {
  std::string_view text;
  bool has_doubled_quotes = false;  // contains "", which stands for one quote

  /// The text after replacing doubled quotes by single ones.
  std::string value() const;
};

/// Returns the text without a byte order mark and blank lines at its end. Throws ConfigError for a delimiter that
/// cannot be one, and IoError for a text without rows, with a NUL byte, or in another format.
std::string_view check_csv_text(std::string_view text, const std::string& source, const CsvOptions& options);

/// Returns the text without blank lines and blanks at its end.
std::string_view trim_end(std::string_view text, char delimiter);

/// Facts about a text that are cheap to find.
struct CsvSurvey {
  std::size_t line_ends = 0;  // LF, CRLF and CR; a CR at the end of the text counts
  bool is_plain = true;       // has no quotes, which may hide line ends, and no NUL bytes

  bool operator==(const CsvSurvey&) const = default;
};

CsvSurvey survey(std::string_view text);

/// Splits a text, or a part of it, into rows of fields. Nothing is copied: fields are valid as long as the text. Every
/// error names the source, line and column.
class CsvScanner {
 public:
  /// `text` was checked. It begins with a row, which is on `line`.
  CsvScanner(std::string_view text, std::int64_t line, const std::string& source, const CsvOptions& options);

  /// Stores the next row in `fields`, at least one field; returns false at the end of the text.
  bool next_row(std::vector<CsvField>& fields);

  /// Where the next row begins, its line, and the end of the text.
  const char* cursor() const noexcept { return cursor_; }
  std::int64_t next_line() const noexcept { return next_line_; }
  const char* end() const noexcept { return end_; }
  /// Goes on behind a row of one line without quotes that somebody else has read.
  void skip_row(const char* next) noexcept {
    cursor_ = next;
    ++next_line_;
  }
  /// Whether a byte ends a field without quotes.
  bool ends_field(char c) const noexcept { return ends_unquoted_[static_cast<unsigned char>(c)]; }
  bool is_blank(char c) const noexcept { return (c == ' ' || c == '\t') && c != delimiter_; }

  /// The line on which the last row starts, and its text without the line end.
  std::int64_t line() const noexcept { return line_; }
  std::string_view row() const noexcept;
  /// Places in the last row: the start of a field (after the opening quote, if any), and the end of the row.
  CsvPlace place(const CsvField& field) const { return place(std::to_address(field.text.begin())); }
  CsvPlace end_of_row() const { return place(row_end_); }

 private:
  CsvPlace place(const char* position) const;
  CsvField read_field();
  CsvField read_quoted(const char* quote);
  const char* skip_blanks(const char* position) const;

  const std::string& source_;
  char delimiter_;
  std::size_t max_field_bytes_;
  std::size_t max_columns_;
  std::array<bool, 256> ends_unquoted_{};  // bytes that end the scan of an unquoted field

  const char* cursor_ = nullptr;
  const char* end_ = nullptr;
  const char* row_begin_ = nullptr;
  const char* row_end_ = nullptr;
  std::int64_t line_ = 0;
  std::int64_t next_line_ = 1;
  bool row_has_quotes_ = false;
};

}  // namespace tandem::inline v0::data

#include <tandem/data/csv_scanner.h>

#include <algorithm>
#include <cstring>

#include <tandem/core/check.h>
#include <tandem/data/diagnostics.h>

namespace tandem::inline v0::data {

namespace {

std::size_t index_of(char c) { return static_cast<unsigned char>(c); }

// The place of `position` in a text that starts on `line`. LF, CRLF and CR end lines.
CsvPlace place_in(const char* begin, const char* end, const char* position, std::int64_t line) {
  const char* line_begin = begin;
  for (const char* c = begin; c < position; ++c) {
    if (*c == '\n' || (*c == '\r' && (c + 1 == end || c[1] != '\n'))) {
      ++line;
      line_begin = c + 1;
    }
  }
  return {.line = line, .column = position - line_begin + 1};
}

void check_delimiter(char delimiter) {
  constexpr std::string_view kPartOfFields = "\"\r\n+-.0123456789eE";
  check<ConfigError>(delimiter != '\0' && kPartOfFields.find(delimiter) == std::string_view::npos,
                     "CsvOptions::delimiter {} cannot separate fields; use ',' ';' or a tab",
                     excerpt(std::string_view(&delimiter, 1), 1));
}

}  // namespace

std::string CsvField::value() const {
  if (!has_doubled_quotes) {
    return std::string(text);
  }
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    i += text[i] == '"' ? 1 : 0;
  }
  return result;
}

std::string_view check_csv_text(std::string_view text, const std::string& source, const CsvOptions& options) {
  check_delimiter(options.delimiter);
  const std::string_view guess = recognise(text.substr(0, 64));
  check<IoError>(guess.empty(), "{}: not a CSV file; this looks like {}", source, guess);
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  text = trim_end(text, options.delimiter);
  check<IoError>(!text.empty(), "{}: there are no rows", source);
  if (const void* nul = std::memchr(text.data(), 0, text.size()); nul != nullptr) {
    const char* end = text.data() + text.size();
    const CsvPlace at = place_in(text.data(), end, static_cast<const char*>(nul), 1);
    fail<IoError>("{}:{}:{}: a NUL byte; is this a binary file, or UTF-16 text?", source, at.line, at.column);
  }
  return text;
}

std::string_view trim_end(std::string_view text, char delimiter) {
  const auto is_trailing = [&](char c) {
    return c == '\n' || c == '\r' || ((c == ' ' || c == '\t') && c != delimiter);
  };
  while (!text.empty() && is_trailing(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

CsvSurvey survey(std::string_view text) {
  if (text.empty()) {
    return {};
  }
  const char* bytes = text.data();
  std::size_t line_ends = text.back() == '\n' || text.back() == '\r' ? 1 : 0;
  bool special = text.back() == '"' || text.back() == '\0';
  constexpr std::size_t kBlock = 128;  // its count fits into a byte, so the compiler looks at 16 bytes at once
  for (std::size_t begin = 0; begin + 1 < text.size(); begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, text.size() - 1);
    std::uint8_t count = 0;
    std::uint8_t found = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const bool is_line_end = (bytes[i] == '\n') | ((bytes[i] == '\r') & (bytes[i + 1] != '\n'));
      count = static_cast<std::uint8_t>(count + is_line_end);
      found = static_cast<std::uint8_t>(found | (bytes[i] == '"') | (bytes[i] == '\0'));
    }
    line_ends += count;
    special = special || found != 0;
  }
  return {.line_ends = line_ends, .is_plain = !special};
}

CsvScanner::CsvScanner(std::string_view text, std::int64_t line, const std::string& source, const CsvOptions& options)
    : source_(source),
      delimiter_(options.delimiter),
      max_field_bytes_(options.max_field_bytes),
      max_columns_(options.max_columns),
      cursor_(text.data()),
      end_(text.data() + text.size()),
      row_begin_(cursor_),
      row_end_(cursor_),
      next_line_(line) {
  for (const char c : {delimiter_, '"', '\r', '\n'}) {
    ends_unquoted_[index_of(c)] = true;
  }
}

std::string_view CsvScanner::row() const noexcept {
  return {row_begin_, static_cast<std::size_t>(row_end_ - row_begin_)};
}

CsvPlace CsvScanner::place(const char* position) const { return place_in(row_begin_, end_, position, line_); }

bool CsvScanner::next_row(std::vector<CsvField>& fields) {
  fields.clear();
  if (cursor_ == end_) {
    return false;
  }
  row_begin_ = cursor_;
  line_ = next_line_;
  row_has_quotes_ = false;
  for (;;) {
    if (fields.size() == max_columns_) {
      const CsvPlace at = place(cursor_);
      fail<IoError>("{}:{}:{}: row has more than {} fields (CsvOptions::max_columns)", source_, at.line, at.column,
                    max_columns_);
    }
    fields.push_back(read_field());
    if (cursor_ == end_ || *cursor_ != delimiter_) {
      break;
    }
    ++cursor_;
  }
  row_end_ = cursor_;
  if (cursor_ < end_) {
    cursor_ += *cursor_ == '\r' && cursor_ + 1 < end_ && cursor_[1] == '\n' ? 2 : 1;
  }
  next_line_ = row_has_quotes_ ? place(cursor_).line : line_ + 1;
  return true;
}

CsvField CsvScanner::read_field() {
  const char* begin = skip_blanks(cursor_);
  if (begin < end_ && *begin == '"') {
    return read_quoted(begin);
  }
  const char* stop = begin;
  while (stop < end_ && !ends_unquoted_[index_of(*stop)]) {
    ++stop;
  }
  const auto length = static_cast<std::size_t>(stop - begin);
  if (length > max_field_bytes_) {
    const CsvPlace at = place(begin);
    fail<IoError>("{}:{}:{}: field of {} bytes, the limit is {} (CsvOptions::max_field_bytes)", source_, at.line,
                  at.column, length, max_field_bytes_);
  }
  if (stop < end_ && *stop == '"') {
    const CsvPlace at = place(stop);
    fail<IoError>(
        "{}:{}:{}: a quote inside the unquoted field {}; put the field in quotes and double the quotes inside it",
        source_, at.line, at.column, excerpt({begin, length + 1}));
  }
  cursor_ = stop;
  while (stop > begin && is_blank(stop[-1])) {
    --stop;
  }
  return {.text = {begin, static_cast<std::size_t>(stop - begin)}};
}

CsvField CsvScanner::read_quoted(const char* quote) {
  row_has_quotes_ = true;
  const char* begin = quote + 1;
  const char* limit = static_cast<std::size_t>(end_ - begin) > max_field_bytes_ ? begin + max_field_bytes_ + 1 : end_;
  bool doubled = false;
  const char* close = begin;
  for (;; close += 2, doubled = true) {
    close = std::find(std::min(close, limit), limit, '"');
    if (close == limit) {
      const CsvPlace at = place(quote);
      check<IoError>(limit != end_, "{}:{}:{}: the quote that opens here is never closed: {}", source_, at.line,
                     at.column, excerpt({quote, static_cast<std::size_t>(end_ - quote)}));
      fail<IoError>("{}:{}:{}: the quote that opens here is not closed within {} bytes (CsvOptions::max_field_bytes)",
                    source_, at.line, at.column, max_field_bytes_);
    }
    if (close + 1 >= end_ || close[1] != '"') {
      break;
    }
  }
  cursor_ = skip_blanks(close + 1);
  if (cursor_ < end_ && *cursor_ != delimiter_ && *cursor_ != '\n' && *cursor_ != '\r') {
    const CsvPlace at = place(cursor_);
    fail<IoError>("{}:{}:{}: text after the closing quote: {}; a quote inside a quoted field must be doubled", source_,
                  at.line, at.column, excerpt({quote, static_cast<std::size_t>(cursor_ - quote) + 1}));
  }
  return {.text = {begin, static_cast<std::size_t>(close - begin)}, .has_doubled_quotes = doubled};
}

const char* CsvScanner::skip_blanks(const char* position) const {
  while (position < end_ && is_blank(*position)) {
    ++position;
  }
  return position;
}

}  // namespace tandem::inline v0::data

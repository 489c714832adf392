#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/data/byte_source.h>
#include <tandem/data/csv.h>
#include <tandem/data/csv_scanner.h>
#include <tandem/data/diagnostics.h>

namespace tandem::inline v0::data {

namespace {

constexpr std::size_t kRowExcerpt = 100;

enum class FieldKind : std::uint8_t { number, not_finite, text };

bool is_infinity(std::string_view text) {
  constexpr std::string_view kInfinity = "infinity";
  const auto same_letter = [](char a, char b) { return (a | 0x20) == b; };
  return (text.size() == 3 || text.size() == kInfinity.size()) &&
         std::equal(text.begin(), text.end(), kInfinity.begin(), same_letter);
}

// std::from_chars with an optional '+' and without the words it accepts ("inf", "nan(...)"). Blanks inside quotes are
// removed here; the scanner has removed all others.
FieldKind parse_number(std::string_view text, double& value) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) {
    text.remove_suffix(1);
  }
  const bool has_sign = !text.empty() && (text.front() == '+' || text.front() == '-');
  const std::string_view digits = text.substr(has_sign ? 1 : 0);
  if (digits.empty() || !(digits.front() == '.' || (digits.front() >= '0' && digits.front() <= '9'))) {
    return is_infinity(digits) ? FieldKind::not_finite : FieldKind::text;
  }
  const char* begin = text.front() == '+' ? digits.data() : text.data();
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(begin, end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) {
    return FieldKind::text;
  }
  if (result.ec == std::errc::result_out_of_range) {
    // Out of range means too large, or too small, which counts as zero. Only small numbers have a negative exponent or
    // start with "0.".
    const std::string_view number(begin, static_cast<std::size_t>(end - begin));
    const auto exponent = number.find_first_of("eE");
    const bool small = exponent == std::string_view::npos ? number.find_first_of("123456789") > number.find('.')
                                                          : number.find('-', exponent) != std::string_view::npos;
    value = 0;
    return small ? FieldKind::number : FieldKind::not_finite;
  }
  return FieldKind::number;
}

// A problem to report after the whole file is known.
struct Finding {
  CsvPlace place;
  std::string text;
};

class TableReader {
 public:
  TableReader(std::string_view text, const std::string& source, const CsvOptions& options)
      : text_(text), source_(source), options_(options) {
    for (const std::string& name : options.missing_names) {
      if (!name.empty()) {
        starts_missing_[static_cast<unsigned char>(name.front())] = true;
      }
    }
  }

  CsvTable read() {
    // A column whose first text comes late has already stored its first rows as numbers. The second pass knows these
    // columns.
    while (!read_all_rows()) {
    }
    check_finite();
    check<IoError>(!lines_.empty() || dropped_ == 0,
                   "{}: each of the {} rows misses a value, and CsvOptions::missing is drop_row: nothing is left",
                   source_, dropped_);
    check<IoError>(!lines_.empty(), "{}: there is a header, but no rows follow", source_);
    return CsvTable(source_, std::move(columns_), std::move(lines_), dropped_);
  }

 private:
  // Returns false if the pass must be repeated because a column changed from numbers to text.
  bool read_all_rows() {
    lines_.clear();
    dropped_ = 0;
    again_ = false;
    CsvScanner scanner(text_, source_, options_);
    scanner.next_row(fields_);
    const bool has_header = is_header(scanner);
    if (columns_.empty()) {
      name_columns(scanner, has_header);
    }
    for (CsvColumn& column : columns_) {
      column.numbers.clear();
      column.texts.clear();
    }
    if (!has_header || scanner.next_row(fields_)) {
      do {
        read_row(scanner);
      } while (scanner.next_row(fields_));
    }
    return !again_;
  }

  bool is_header(const CsvScanner& scanner) const {
    if (options_.header != Header::detect) {
      return options_.header == Header::yes;
    }
    const CsvField* text = nullptr;
    const CsvField* number = nullptr;
    for (const CsvField& field : fields_) {
      double value = 0;
      if (!is_missing(field)) {
        (parse_number(field.text, value) == FieldKind::text ? text : number) = &field;
      }
    }
    if (text != nullptr && number != nullptr) {
      const CsvPlace at = scanner.place(*text);
      fail<IoError>(
          "{}:{}:{}: is this row a header? It has both text such as {} and numbers such as {}; set CsvOptions::header "
          "to yes or no",
          source_, at.line, at.column, excerpt(text->text), excerpt(number->text));
    }
    return text != nullptr;
  }

  void name_columns(const CsvScanner& scanner, bool has_header) {
    first_line_ = scanner.line();
    columns_.resize(fields_.size());
    not_finite_.resize(fields_.size());
    std::vector<std::pair<std::string_view, std::size_t>> sorted;
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      columns_[i].name = has_header && !fields_[i].text.empty() ? fields_[i].value() : fmt::format("column_{}", i);
      columns_[i].numeric = true;
      sorted.emplace_back(columns_[i].name, i);
    }
    std::sort(sorted.begin(), sorted.end());
    const auto same_name = [](const auto& a, const auto& b) { return a.first == b.first; };
    if (const auto twin = std::adjacent_find(sorted.begin(), sorted.end(), same_name); twin != sorted.end()) {
      const std::size_t second = twin[1].second;
      const CsvPlace at = scanner.place(fields_[second]);
      fail<IoError>("{}:{}:{}: column name {} is used twice, in fields {} and {}", source_, at.line, at.column,
                    excerpt(twin->first), twin->second + 1, second + 1);
    }
    for (const std::string& name : options_.text_columns) {
      const auto found =
          std::lower_bound(sorted.begin(), sorted.end(), std::pair(std::string_view(name), std::size_t{0}));
      check<ConfigError>(found != sorted.end() && found->first == name,
                         "{}: CsvOptions::text_columns: there is no column {}", source_, excerpt(name));
      columns_[found->second].numeric = false;
    }
  }

  void read_row(const CsvScanner& scanner) {
    if (fields_.size() != columns_.size()) {
      fail_ragged(scanner);
    }
    const auto missing = std::find_if(fields_.begin(), fields_.end(), [&](const CsvField& f) { return is_missing(f); });
    if (missing != fields_.end()) {
      if (options_.missing == Missing::error) {
        fail_missing(scanner, *missing);
      }
      if (options_.missing == Missing::drop_row) {
        ++dropped_;
        return;
      }
    }
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      read_field(scanner, i, missing != fields_.end() && is_missing(fields_[i]));
    }
    if (lines_.empty()) {
      reserve(scanner);
    }
    lines_.push_back(scanner.line());
  }

  void read_field(const CsvScanner& scanner, std::size_t i, bool missing) {
    CsvColumn& column = columns_[i];
    const CsvField& field = fields_[i];
    if (!column.numeric) {
      column.texts.push_back(missing ? std::string() : field.value());
      if (column.first_text.line == 0) {
        column.first_text = scanner.place(field);
        column.first_text_excerpt = excerpt(field.value());
      }
      return;
    }
    double value = kNaN;
    const FieldKind kind = missing ? FieldKind::number : parse_number(field.text, value);
    if (kind == FieldKind::number) {
      column.numbers.push_back(value);
    } else if (kind == FieldKind::not_finite) {
      column.numbers.push_back(kNaN);
      if (!not_finite_[i]) {
        not_finite_[i] = {scanner.place(field), excerpt(field.value())};
      }
    } else {
      column.numeric = false;
      column.first_text = scanner.place(field);
      column.first_text_excerpt = excerpt(field.value());
      column.numbers = {};
      column.texts.push_back(field.value());
      again_ = again_ || !lines_.empty();
    }
  }

  // Called after the first row, when most text columns are known.
  void reserve(const CsvScanner& scanner) {
    // Each field takes at least one byte, so the reserved memory is at most a few times the size of the text.
    const auto rest = static_cast<std::size_t>(text_.data() + text_.size() - scanner.row().data());
    const auto line_ends =
        static_cast<std::size_t>(std::count(text_.end() - static_cast<std::ptrdiff_t>(rest), text_.end(), '\n'));
    const std::size_t rows = std::min(line_ends + 1, rest / columns_.size() + 1);
    lines_.reserve(rows);
    for (CsvColumn& column : columns_) {
      if (column.numeric) {
        column.numbers.reserve(rows);
      }
    }
  }

  bool is_missing(const CsvField& field) const {
    if (field.text.empty()) {
      return true;
    }
    return starts_missing_[static_cast<unsigned char>(field.text.front())] &&
           std::find(options_.missing_names.begin(), options_.missing_names.end(), field.text) !=
               options_.missing_names.end();
  }

  // A numeric column must not hold infinite numbers; in a text column, "inf" is a word.
  void check_finite() const {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (const std::optional<Finding>& found = not_finite_[i]; found && columns_[i].numeric) {
        const auto& [at, text] = *found;
        fail<IoError>("{}:{}:{}: {} in column {} is infinite or does not fit into a double", source_, at.line,
                      at.column, text, excerpt(columns_[i].name));
      }
    }
  }

  [[noreturn]] void fail_ragged(const CsvScanner& scanner) const {
    const bool too_many = fields_.size() > columns_.size();
    const CsvPlace at = too_many ? scanner.place(fields_[columns_.size()]) : scanner.end_of_row();
    fail<IoError>("{}:{}:{}: expected {} fields as in line {}, found {}: {}", source_, at.line, at.column,
                  columns_.size(), first_line_, fields_.size(), excerpt(scanner.row(), kRowExcerpt));
  }

  [[noreturn]] void fail_missing(const CsvScanner& scanner, const CsvField& field) const {
    const CsvPlace at = scanner.place(field);
    const auto i = static_cast<std::size_t>(&field - fields_.data());
    fail<IoError>("{}:{}:{}: column {} has no value here (found {}); set CsvOptions::missing to drop_row or keep_nan",
                  source_, at.line, at.column, excerpt(columns_[i].name), excerpt(field.text));
  }

  static constexpr double kNaN = __builtin_nan("");

  std::string_view text_;
  const std::string& source_;
  const CsvOptions& options_;
  std::array<bool, 256> starts_missing_{};  // first bytes of missing names; most fields need no further check

  std::vector<CsvField> fields_;
  std::vector<CsvColumn> columns_;
  std::vector<std::optional<Finding>> not_finite_;  // the first such field of each column
  std::vector<std::int64_t> lines_;
  std::int64_t first_line_ = 1;
  std::int64_t dropped_ = 0;
  bool again_ = false;
};

}  // namespace

CsvTable parse_csv(std::string_view text, const std::string& name, const CsvOptions& options) {
  return TableReader(text, name, options).read();
}

CsvTable read_csv(const std::string& path, const CsvOptions& options) {
  // The parser refuses NUL bytes and fields that are too long. Files full of one byte are packed well.
  std::size_t without_end = 0;  // bytes of the last field so far
  const auto is_text = [&](std::span<const std::uint8_t> fresh, std::size_t) {
    const auto ends_field = [&](std::uint8_t byte) {
      return byte == '\n' || byte == '\r' || byte == '"' || byte == static_cast<std::uint8_t>(options.delimiter);
    };
    const auto last = std::find_if(fresh.rbegin(), fresh.rend(), ends_field);
    without_end = static_cast<std::size_t>(last - fresh.rbegin()) + (last == fresh.rend() ? without_end : 0);
    return without_end <= options.max_field_bytes && std::memchr(fresh.data(), 0, fresh.size()) == nullptr;
  };
  const std::vector<std::uint8_t> bytes = read_file(path, options.max_bytes, is_text);
  return parse_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, options);
}

}  // namespace tandem::inline v0::data

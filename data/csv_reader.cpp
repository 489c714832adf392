#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/huge_pages.h>
#include <tandem/core/thread_pool.h>
#include <tandem/data/byte_source.h>
#include <tandem/data/csv.h>
#include <tandem/data/csv_file.h>
#include <tandem/data/csv_number.h>
#include <tandem/data/csv_rows.h>
#include <tandem/data/diagnostics.h>

namespace tandem::inline v0::data {

namespace {

constexpr std::size_t kPartBytes = std::size_t{1} << 20;
constexpr std::size_t kPartsAtOnce = 16;  // at least: a file that is wrong at its beginning takes little memory

class TableReader {
 public:
  TableReader(std::string_view text, const std::string& source, const CsvOptions& options, std::size_t part_bytes)
      : text_(check_csv_text(text, source, options)),
        draft_{.source = source, .options = options},
        part_bytes_(part_bytes) {}
  TableReader(const CsvFile& file, const std::string& source, const CsvOptions& options)
      : text_(check_csv_text(file.beginning(), source, options)),
        draft_{.source = source, .options = options, .file = &file} {}

  CsvTable read() {
    read_beginning();
    // A column whose first text comes late was read as numbers. The second pass knows these columns.
    do {
      read_parts();
    } while (turn_columns_to_text());
    check_finite();
    close_gaps();
    std::int64_t dropped = 0;
    for (const CsvPart& part : parts_) {
      dropped += part.dropped;
    }
    check<IoError>(!draft_.lines.empty() || dropped == 0,
                   "{}: each of the {} rows misses a value, and CsvOptions::missing is drop_row: nothing is left",
                   draft_.source, dropped);
    check<IoError>(!draft_.lines.empty(), "{}: there is a header, but no rows follow", draft_.source);
    return CsvTable(draft_.source, std::move(draft_.columns), std::move(draft_.lines), dropped);
  }

 private:
  // The names, the columns that the first row shows to be text, and the parts.
  void read_beginning() {
    CsvScanner scanner(text_, 1, draft_.source, draft_.options);
    std::vector<CsvField> fields;
    scanner.next_row(fields);
    const bool has_header = is_header(scanner, fields);
    name_columns(scanner, fields, has_header);
    CsvScanner rows = has_header ? scanner : CsvScanner(text_, 1, draft_.source, draft_.options);
    cut({rows.cursor(), rows.end()}, rows.next_line());
    if (rows.next_row(fields) && fields.size() == draft_.columns.size()) {
      guess_texts(fields);
    }
  }

  bool is_header(const CsvScanner& scanner, const std::vector<CsvField>& fields) const {
    if (draft_.options.header != Header::detect) {
      return draft_.options.header == Header::yes;
    }
    const CsvField* text = nullptr;
    const CsvField* number = nullptr;
    for (const CsvField& field : fields) {
      double value = 0;
      if (!draft_.missing.contains(field.text)) {
        (parse_number(field.text, value) == FieldKind::text ? text : number) = &field;
      }
    }
    if (text != nullptr && number != nullptr) {
      const CsvPlace at = scanner.place(*text);
      fail<IoError>(
          "{}:{}:{}: is this row a header? It has both text such as {} and numbers such as {}; set CsvOptions::header "
          "to yes or no",
          draft_.source, at.line, at.column, excerpt(text->text), excerpt(number->text));
    }
    return text != nullptr;
  }

  void name_columns(const CsvScanner& scanner, const std::vector<CsvField>& fields, bool has_header) {
    draft_.first_line = scanner.line();
    draft_.columns.resize(fields.size());
    std::vector<std::pair<std::string_view, std::size_t>> sorted;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      CsvColumn& column = draft_.columns[i];
      column.name = has_header && !fields[i].text.empty() ? fields[i].value() : fmt::format("column_{}", i);
      column.numeric = true;
      sorted.emplace_back(column.name, i);
    }
    std::sort(sorted.begin(), sorted.end());
    const auto same_name = [](const auto& a, const auto& b) { return a.first == b.first; };
    if (const auto twin = std::adjacent_find(sorted.begin(), sorted.end(), same_name); twin != sorted.end()) {
      const std::size_t second = twin[1].second;
      const CsvPlace at = scanner.place(fields[second]);
      fail<IoError>("{}:{}:{}: column name {} is used twice, in fields {} and {}", draft_.source, at.line, at.column,
                    excerpt(twin->first), twin->second + 1, second + 1);
    }
    for (const std::string& name : draft_.options.text_columns) {
      const auto found =
          std::lower_bound(sorted.begin(), sorted.end(), std::pair(std::string_view(name), std::size_t{0}));
      check<ConfigError>(found != sorted.end() && found->first == name,
                         "{}: CsvOptions::text_columns: there is no column {}", draft_.source, excerpt(name));
      draft_.columns[found->second].numeric = false;
    }
  }

  // Without this, a table with a column of text would be read twice.
  void guess_texts(const std::vector<CsvField>& first_row) {
    const auto is_missing = [&](const CsvField& field) { return draft_.missing.contains(field.text); };
    if (draft_.options.missing == Missing::drop_row && std::any_of(first_row.begin(), first_row.end(), is_missing)) {
      return;
    }
    for (std::size_t i = 0; i < first_row.size(); ++i) {
      double value = 0;
      if (!is_missing(first_row[i]) && parse_number(first_row[i].text, value) == FieldKind::text) {
        draft_.columns[i].numeric = false;
      }
    }
  }

  // Cuts the rows into parts at line ends, which the scanner has not seen yet.
  void cut(std::string_view rows, std::int64_t line) {
    if (draft_.file != nullptr) {
      cut_file(rows.data());
    } else {
      cut_text(rows);
    }
    for (CsvPart& part : parts_) {
      part.line = line;
      part.first_row = room_;
      line += static_cast<std::int64_t>(part.capacity);
      // Each field takes at least one byte, so a wrong text does not take more memory than a right one.
      const std::size_t bytes = part.text.size() + part.piece.bytes;
      part.capacity = std::min(part.capacity, (bytes + 1) / draft_.columns.size());
      room_ += part.capacity;
    }
  }

  // With quotes, which may hold line ends, there is one part.
  void cut_text(std::string_view rows) {
    const bool has_quotes = std::memchr(rows.data(), '"', rows.size()) != nullptr;
    while (!rows.empty()) {
      const std::size_t end = has_quotes ? std::string_view::npos : rows.find('\n', std::min(part_bytes_, rows.size()));
      parts_.push_back({.text = rows.substr(0, end == std::string_view::npos ? end : end + 1)});
      rows.remove_prefix(parts_.back().text.size());
    }
    core::ThreadPool::instance().for_each_chunk(std::ssize(parts_), [&](std::int64_t i) {
      CsvPart& part = parts_[static_cast<std::size_t>(i)];
      part.capacity = survey(part.text).line_ends + (i + 1 == std::ssize(parts_) ? 1 : 0);
    });
  }

  void cut_file(const char* first_row) {
    std::string_view beginning = draft_.file->beginning();
    beginning.remove_prefix(static_cast<std::size_t>(first_row - beginning.data()));
    parts_.push_back({.text = beginning, .capacity = survey(beginning).line_ends});
    for (const CsvPiece& piece : std::span(draft_.file->pieces()).subspan(1)) {
      parts_.push_back({.piece = piece, .capacity = piece.survey.line_ends});
    }
    ++parts_.back().capacity;  // the last line lacks its end
  }

  // Reads some parts at a time, so that memory grows with what was accepted.
  void read_parts() {
    const std::size_t at_once = std::max(kPartsAtOnce, 4 * static_cast<std::size_t>(num_threads()));
    for (std::size_t begin = 0; begin < parts_.size(); begin += at_once) {
      const std::span<CsvPart> some = std::span(parts_).subspan(begin, std::min(at_once, parts_.size() - begin));
      make_room(some.back().first_row + some.back().capacity);
      core::ThreadPool::instance().for_each_chunk(
          std::ssize(some), [&](std::int64_t i) { read_part(draft_, some[static_cast<std::size_t>(i)]); });
      for (const CsvPart& part : some) {
        if (part.error) {
          std::rethrow_exception(part.error);
        }
      }
    }
  }

  void make_room(std::size_t rows) {
    draft_.lines.resize(std::max(rows, draft_.lines.size()));
    core::ThreadPool::instance().for_each_chunk(std::ssize(draft_.columns), [&](std::int64_t i) {
      CsvColumn& column = draft_.columns[static_cast<std::size_t>(i)];
      if (!column.numeric) {
        column.numbers = std::vector<double>();
        column.texts.reserve(room_);
        column.texts.resize(std::max(rows, column.texts.size()));
        return;
      }
      if (column.numbers.capacity() == 0) {
        column.numbers.reserve(room_);
        core::use_huge_pages(column.numbers.data(), room_ * sizeof(double));
      }
      column.numbers.resize(std::max(rows, column.numbers.size()));
    });
  }

  // Returns whether a column changes from numbers to text.
  bool turn_columns_to_text() {
    bool again = false;
    for (std::size_t i = 0; i < draft_.columns.size(); ++i) {
      CsvColumn& column = draft_.columns[i];
      const std::optional<CsvFinding> first = first_of(&CsvPart::texts, i);
      if (first && column.first_text.line == 0) {
        column.first_text = first->place;
        column.first_text_excerpt = first->text;
      }
      again = again || (first && column.numeric);
      column.numeric = column.numeric && !first;
    }
    return again;
  }

  std::optional<CsvFinding> first_of(std::map<std::size_t, CsvFinding> CsvPart::* findings, std::size_t i) const {
    for (const CsvPart& part : parts_) {
      if (const auto found = (part.*findings).find(i); found != (part.*findings).end()) {
        return found->second;
      }
    }
    return std::nullopt;
  }

  // A numeric column must not hold infinite numbers; in a text column, "inf" is a word.
  void check_finite() const {
    for (std::size_t i = 0; i < draft_.columns.size(); ++i) {
      if (const auto found = first_of(&CsvPart::not_finite, i); found && draft_.columns[i].numeric) {
        fail<IoError>("{}:{}:{}: {} in column {} is infinite or does not fit into a double", draft_.source,
                      found->place.line, found->place.column, found->text, excerpt(draft_.columns[i].name));
      }
    }
  }

  // Parts may have fewer rows than lines.
  void close_gaps() {
    core::ThreadPool::instance().for_each_chunk(std::ssize(draft_.columns) + 1, [&](std::int64_t i) {
      if (i == std::ssize(draft_.columns)) {
        close_gaps_in(draft_.lines);
      } else if (CsvColumn& column = draft_.columns[static_cast<std::size_t>(i)]; column.numeric) {
        close_gaps_in(column.numbers);
      } else {
        close_gaps_in(column.texts);
      }
    });
  }

  template <class T>
  void close_gaps_in(std::vector<T>& values) const {
    std::size_t rows = 0;
    for (const CsvPart& part : parts_) {
      if (rows != part.first_row) {
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(part.first_row);
        std::move(begin, begin + static_cast<std::ptrdiff_t>(part.rows),
                  values.begin() + static_cast<std::ptrdiff_t>(rows));
      }
      rows += part.rows;
    }
    values.resize(rows);
    if (rows < room_ / 2) {
      values.shrink_to_fit();
    }
  }

  std::string_view text_;
  CsvDraft draft_;
  std::vector<CsvPart> parts_;
  std::size_t part_bytes_ = 0;
  std::size_t room_ = 0;  // for rows, in all parts
};

}  // namespace

CsvTable read_table(std::string_view text, const std::string& source, const CsvOptions& options,
                    std::size_t part_bytes) {
  return TableReader(text, source, options, part_bytes).read();
}

CsvTable read_table(const std::string& path, const CsvOptions& options, std::size_t part_bytes) {
  if (const auto file = CsvFile::open(path, options, part_bytes)) {
    return TableReader(*file, path, options).read();
  }
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
  return read_table({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, options, part_bytes);
}

CsvTable parse_csv(std::string_view text, const std::string& name, const CsvOptions& options) {
  return read_table(text, name, options, kPartBytes);
}

CsvTable read_csv(const std::string& path, const CsvOptions& options) { return read_table(path, options, kPartBytes); }

}  // namespace tandem::inline v0::data

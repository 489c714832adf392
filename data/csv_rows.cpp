#include <tandem/data/csv_rows.h>

#include <algorithm>
#include <memory>

#include <tandem/core/check.h>
#include <tandem/data/csv_number.h>
#include <tandem/data/diagnostics.h>

// Most rows are plain: numbers that end where their field ends, and texts without quotes and blanks around them. A
// plain row is read in one pass, without a list of its fields. Any other row is left to the scanner, which knows the
// whole grammar and all errors.

namespace tandem::inline v0::data {

namespace {

constexpr std::size_t kRowExcerpt = 100;
constexpr double kNoNumber = __builtin_nan("");

class PartReader {
 public:
  PartReader(CsvDraft& draft, CsvPart& part, std::string_view text)
      : draft_(draft),
        part_(part),
        scanner_(text, part.line, draft.source, draft.options),
        has_first_text_(draft.columns.size(), false) {
    part.texts.clear();
    part.not_finite.clear();
    for (CsvColumn& column : draft.columns) {
      numbers_.push_back(column.numeric ? column.numbers.data() : nullptr);
    }
  }

  void read() {
    while (read_plain_row() || read_row()) {
    }
  }

 private:
  std::size_t row() const { return part_.first_row + part_.rows; }

  // Returns false, and has read nothing that counts, if the row is not plain.
  bool read_plain_row() {
    const char* at = scanner_.cursor();
    const char* end = scanner_.end();
    if (part_.rows == part_.capacity) {
      return false;
    }
    const std::size_t row = this->row();
    const std::size_t last = numbers_.size() - 1;
    for (std::size_t i = 0; i <= last; ++i) {
      if (at == end) {
        return false;
      }
      const char* stop = numbers_[i] != nullptr ? parse_plain_number(at, end, numbers_[i][row]) : plain_text(at, i);
      if (stop == nullptr) {
        return false;
      }
      const bool ends_here =
          i < last ? stop != end && *stop == draft_.options.delimiter : stop == end || *stop == '\n' || *stop == '\r';
      const std::string_view text(at, static_cast<std::size_t>(stop - at));
      if (!ends_here || text.size() > draft_.options.max_field_bytes ||
          (draft_.missing.may_begin(*at) && draft_.missing.contains(text))) {
        return false;
      }
      if (numbers_[i] == nullptr) {
        draft_.columns[i].texts[row].assign(at, stop);
      }
      at = i == last ? stop : stop + 1;
    }
    draft_.lines[row] = scanner_.next_line();
    ++part_.rows;
    const std::ptrdiff_t line_end = at == end ? 0 : *at == '\r' && at + 1 != end && at[1] == '\n' ? 2 : 1;
    scanner_.skip_row(at + line_end);
    return true;
  }

  // Returns the end of a text without blanks around it in a column whose first text is known, or null.
  const char* plain_text(const char* at, std::size_t column) const {
    const char* stop = at;
    while (stop != scanner_.end() && !scanner_.ends_field(*stop)) {
      ++stop;
    }
    const bool is_plain =
        has_first_text_[column] && stop != at && !scanner_.is_blank(*at) && !scanner_.is_blank(stop[-1]);
    return is_plain ? stop : nullptr;
  }

  bool read_row() {
    if (!scanner_.next_row(fields_)) {
      return false;
    }
    if (fields_.size() != draft_.columns.size()) {
      fail_ragged();
    }
    const auto is_missing = [&](const CsvField& field) { return draft_.missing.contains(field.text); };
    const auto missing = std::find_if(fields_.begin(), fields_.end(), is_missing);
    if (missing != fields_.end()) {
      if (draft_.options.missing == Missing::error) {
        fail_missing(*missing);
      }
      if (draft_.options.missing == Missing::drop_row) {
        ++part_.dropped;
        return true;
      }
    }
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      read_field(i, missing != fields_.end() && is_missing(fields_[i]));
    }
    draft_.lines[row()] = scanner_.line();
    ++part_.rows;
    return true;
  }

  void read_field(std::size_t i, bool missing) {
    CsvColumn& column = draft_.columns[i];
    const CsvField& field = fields_[i];
    const auto note = [&](std::map<std::size_t, CsvFinding>& found) {
      if (!found.contains(i)) {
        found[i] = {scanner_.place(field), excerpt(field.value())};
      }
    };
    if (!column.numeric) {
      column.texts[row()] = missing ? std::string() : field.value();
      note(part_.texts);
      has_first_text_[i] = true;
      return;
    }
    double value = kNoNumber;
    const FieldKind kind = missing ? FieldKind::number : parse_number(field.text, value);
    column.numbers[row()] = kind == FieldKind::number ? value : kNoNumber;
    if (kind == FieldKind::not_finite) {
      note(part_.not_finite);
    } else if (kind == FieldKind::text) {
      note(part_.texts);
    }
  }

  [[noreturn]] void fail_ragged() const {
    const std::size_t expected = draft_.columns.size();
    const bool too_many = fields_.size() > expected;
    const CsvPlace at = too_many ? scanner_.place(fields_[expected]) : scanner_.end_of_row();
    fail<IoError>("{}:{}:{}: expected {} fields as in line {}, found {}: {} [TDM-E507]", draft_.source, at.line,
                  at.column, expected, draft_.first_line, fields_.size(), excerpt(scanner_.row(), kRowExcerpt));
  }

  [[noreturn]] void fail_missing(const CsvField& field) const {
    const CsvPlace at = scanner_.place(field);
    const auto i = static_cast<std::size_t>(&field - fields_.data());
    fail<IoError>("{}:{}:{}: column {} has no value here (found {}); set CsvOptions::missing to drop_row or keep_nan",
                  draft_.source, at.line, at.column, excerpt(draft_.columns[i].name), excerpt(field.text));
  }

  CsvDraft& draft_;
  CsvPart& part_;
  CsvScanner scanner_;
  std::vector<CsvField> fields_;
  std::vector<double*> numbers_;      // by column, from the first row of the table; null for texts
  std::vector<bool> has_first_text_;  // by column: its place is known, so plain rows may follow
};

}  // namespace

MissingNames::MissingNames(const std::vector<std::string>& names) : names_(names) {
  for (const std::string& name : names) {
    if (!name.empty()) {
      starts_[static_cast<unsigned char>(name.front())] = true;
    }
  }
}

bool MissingNames::contains(std::string_view text) const {
  return text.empty() || (may_begin(text.front()) && std::find(names_.begin(), names_.end(), text) != names_.end());
}

void read_part(CsvDraft& draft, CsvPart& part) noexcept {
  part.rows = 0;
  part.dropped = 0;
  part.error = nullptr;
  try {
    std::unique_ptr<char[]> buffer;
    std::string_view text = part.text;
    if (text.empty()) {
      buffer = std::make_unique_for_overwrite<char[]>(part.piece.bytes);
      draft.file->read(part.piece, buffer.get());
      text = {buffer.get(), part.piece.bytes};
    }
    PartReader(draft, part, text).read();
  } catch (...) {
    part.error = std::current_exception();
  }
}

}  // namespace tandem::inline v0::data

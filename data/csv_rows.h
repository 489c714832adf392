#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/data/csv.h>
#include <tandem/data/csv_file.h>
#include <tandem/data/csv_scanner.h>

// Internal: the rows of a CSV text, part by part. Parts are read at the same time, each into its own rows of the
// columns.

namespace tandem::inline v0::data {

/// The texts that stand for no value.
class MissingNames {
 public:
  explicit MissingNames(const std::vector<std::string>& names);
  bool contains(std::string_view text) const;
  /// Whether one of them begins so.
  bool may_begin(char c) const noexcept { return starts_[static_cast<unsigned char>(c)]; }

 private:
  const std::vector<std::string>& names_;
  std::array<bool, 256> starts_{};  // most fields need no further look
};

/// A field to report.
struct CsvFinding {
  CsvPlace place;
  std::string text;  // quoted and shortened
};

/// Rows that belong together, and what reading them gave. They are in memory or in a file.
struct CsvPart {
  std::string_view text = {};
  CsvPiece piece = {};        // of the file, if there is no text
  std::int64_t line = 1;      // of the first row
  std::size_t first_row = 0;  // where the rows go
  std::size_t capacity = 0;   // a bound for their number

  std::size_t rows = 0;
  std::int64_t dropped = 0;
  std::map<std::size_t, CsvFinding> texts = {};       // by column: the first field that is no number
  std::map<std::size_t, CsvFinding> not_finite = {};  // by column: the first number that is infinite
  std::exception_ptr error = nullptr;                 // ended the reading
};

/// A table while it is read. The columns have room for the rows of all parts.
struct CsvDraft {
  const std::string& source;
  const CsvOptions& options;
  const CsvFile* file = nullptr;  // null if the text is in memory
  MissingNames missing{options.missing_names};
  std::int64_t first_line = 1;  // of the text
  std::vector<CsvColumn> columns = {};
  std::vector<std::int64_t> lines = {};
};

/// Reads a part into its rows of the draft. A text in a column of numbers is noted in `part.texts`; the column must
/// then be read again as text.
void read_part(CsvDraft& draft, CsvPart& part) noexcept;

/// parse_csv() and read_csv(), in parts of about so many bytes.
TANDEM_API CsvTable read_table(std::string_view text, const std::string& source, const CsvOptions& options,
                               std::size_t part_bytes);
TANDEM_API CsvTable read_table(const std::string& path, const CsvOptions& options, std::size_t part_bytes);

}  // namespace tandem::inline v0::data

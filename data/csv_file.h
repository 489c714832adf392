#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/data/csv.h>
#include <tandem/data/csv_scanner.h>

// Internal: a large CSV file that is never in memory as a whole.

namespace tandem::inline v0::data {

/// Whole lines of a file.
struct CsvPiece {
  std::size_t begin = 0;
  std::size_t bytes = 0;
  CsvSurvey survey = {};
};

/// A file in pieces, which several threads read at the same time, each into a small buffer that stays in the cache. The
/// file is read twice: the first time to find and to count the lines.
class TANDEM_API CsvFile {
 public:
  /// Returns null for all files that read_file() should read, with its errors: a pipe, a file of less than a few pieces
  /// or more than max_bytes, gzip data, a file with quotes, NUL bytes or a line that is longer than a piece. `path`
  /// must live as long as the object.
  static std::unique_ptr<CsvFile> open(const std::string& path, const CsvOptions& options, std::size_t piece_bytes);
  ~CsvFile();
  CsvFile(const CsvFile&) = delete;
  CsvFile& operator=(const CsvFile&) = delete;

  /// The text of the first piece: two lines at least, and the beginning of a third.
  std::string_view beginning() const noexcept { return beginning_; }
  /// Together the file without blank lines at its end.
  const std::vector<CsvPiece>& pieces() const noexcept { return pieces_; }
  /// Reads a piece into a buffer of its size. Throws IoError if the file has changed.
  void read(const CsvPiece& piece, char* buffer) const;

 private:
  struct Block;
  CsvFile(const std::string& path, int descriptor) noexcept : path_(path), descriptor_(descriptor) {}
  bool find_pieces(std::size_t size, std::size_t piece_bytes, char delimiter);
  void join(const std::vector<Block>& blocks);
  bool has_two_lines() const;
  // Returns 0, or an error number: ENODATA if the file ends before.
  int fill(char* buffer, std::size_t bytes, std::size_t begin) const noexcept;

  const std::string& path_;
  int descriptor_;
  std::vector<CsvPiece> pieces_;
  std::string beginning_;
};

}  // namespace tandem::inline v0::data

#include <tandem/data/csv_file.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/error.h>
#include <tandem/core/system_limits.h>
#include <tandem/core/thread_pool.h>

namespace tandem::inline v0::data {

namespace {

constexpr std::size_t kFewestPieces = 4;

bool is_gzip(std::string_view text) { return text.starts_with("\x1f\x8b"); }

}  // namespace

// A part of the file between two multiples of the piece size. A piece begins after its first line end.
struct CsvFile::Block {
  bool has_line_end = false;
  bool ends_in_cr = false;
  bool is_plain = false;
  std::size_t bytes = 0;
  std::size_t head_bytes = 0;  // up to the first line end; they belong to the piece before
  std::size_t line_ends_in_head = 0;
  std::size_t line_ends_after = 0;

  Block() = default;
  explicit Block(std::string_view text)
      : has_line_end(text.find('\n') != std::string_view::npos), ends_in_cr(text.ends_with('\r')), bytes(text.size()) {
    head_bytes = has_line_end ? text.find('\n') + 1 : bytes;
    const CsvSurvey head = survey(text.substr(0, head_bytes));
    const CsvSurvey rest = survey(text.substr(head_bytes));
    line_ends_in_head = head.line_ends;
    line_ends_after = rest.line_ends;
    is_plain = head.is_plain && rest.is_plain;
  }
};

std::unique_ptr<CsvFile> CsvFile::open(const std::string& path, const CsvOptions& options, std::size_t piece_bytes) {
  // Opening a pipe and closing it again would disturb its writer.
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size > options.max_bytes ||
      static_cast<std::size_t>(status.st_size) < kFewestPieces * piece_bytes) {
    return nullptr;
  }
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return nullptr;
  }
  std::unique_ptr<CsvFile> file(new CsvFile(path, descriptor));
  return file->find_pieces(static_cast<std::size_t>(status.st_size), piece_bytes, options.delimiter) ? std::move(file)
                                                                                                     : nullptr;
}

CsvFile::~CsvFile() { ::close(descriptor_); }

// Returns false if read_file() should read the file.
bool CsvFile::find_pieces(std::size_t size, std::size_t piece_bytes, char delimiter) {
  std::vector<Block> blocks(size / piece_bytes);  // the last is longer
  std::atomic<bool> suitable = true;
  core::ThreadPool::instance().for_each_chunk(std::ssize(blocks), [&](std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    const std::size_t begin = i * piece_bytes;
    const bool is_last = i + 1 == blocks.size();
    const std::size_t bytes = is_last ? size - begin : piece_bytes;
    if (!suitable) {
      return;
    }
    const auto buffer = std::make_unique_for_overwrite<char[]>(bytes);
    const int error = fill(buffer.get(), bytes, begin);
    const std::string_view text(buffer.get(), bytes);
    if (error != 0 || (i == 0 && is_gzip(text))) {
      suitable = false;
      return;
    }
    blocks[i] = Block(is_last ? trim_end(text, delimiter) : text);
    if (!blocks[i].is_plain || blocks[i].bytes == 0 || (!blocks[i].has_line_end && !is_last)) {
      suitable = false;
    }
  });
  if (!suitable) {
    return false;
  }
  join(blocks);
  beginning_.resize(pieces_.front().bytes);
  return fill(beginning_.data(), beginning_.size(), 0) == 0 && has_two_lines();
}

void CsvFile::join(const std::vector<Block>& blocks) {
  pieces_.push_back(
      {.bytes = blocks[0].bytes, .survey = {.line_ends = blocks[0].line_ends_in_head + blocks[0].line_ends_after}});
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    CsvPiece& before = pieces_.back();
    before.bytes += block.head_bytes;
    before.survey.line_ends += block.line_ends_in_head;
    if (blocks[i - 1].ends_in_cr && block.has_line_end && block.head_bytes == 1) {
      --before.survey.line_ends;  // CRLF is one line end
    }
    if (block.bytes > block.head_bytes) {
      pieces_.push_back({.begin = before.begin + before.bytes,
                         .bytes = block.bytes - block.head_bytes,
                         .survey = {.line_ends = block.line_ends_after}});
    }
  }
}

bool CsvFile::has_two_lines() const {
  const std::size_t second_line = beginning_.find('\n') + 1;
  const std::size_t end = beginning_.find('\n', second_line);
  return end != std::string::npos && beginning_.find_first_not_of(" \t\r\n", end) != std::string::npos;
}

int CsvFile::fill(char* buffer, std::size_t bytes, std::size_t begin) const noexcept {
  std::size_t total = 0;
  while (total < bytes) {
    const ssize_t count = ::pread(descriptor_, buffer + total, bytes - total, static_cast<off_t>(begin + total));
    if (count > 0) {
      total += static_cast<std::size_t>(count);
    } else if (count == 0) {
      return ENODATA;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

void CsvFile::read(const CsvPiece& piece, char* buffer) const {
  const int error = fill(buffer, piece.bytes, piece.begin);
  check<IoError>(error == 0 || error == ENODATA, "{}: cannot be read: {}", path_, core::system_message(error));
  check<IoError>(error == 0 && survey({buffer, piece.bytes}) == piece.survey,
                 "{}: the file has changed while it was read", path_);
}

}  // namespace tandem::inline v0::data

#include <tandem/data/byte_source.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <tandem/core/check.h>
#include <tandem/core/huge_pages.h>
#include <tandem/core/system_limits.h>

namespace tandem::inline v0::data {

namespace {

constexpr std::size_t kChunkBytes = 256 * 1024;
constexpr std::size_t kStepBytes = 4 * 1024 * 1024;  // of a file between two looks at it

// A note about the current directory, the usual reason why a relative path is not found.
std::string current_directory_note(const std::string& path) {
  std::error_code ignored;
  const auto directory = std::filesystem::current_path(ignored);
  return path.starts_with('/') || ignored ? "" : fmt::format(" (current directory: {})", directory.string());
}

class File {
 public:
  explicit File(const std::string& path) : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) {
      fail<IoError>("cannot open '{}': {}{} [TDM-E505]", path, core::system_message(errno),
                    current_directory_note(path));
    }
  }
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // The size of a regular file, else 0. The value is only a hint: the file ends where read() reports its end.
  std::int64_t size_hint() const {
    struct stat status{};
    const bool status_known = ::fstat(descriptor_, &status) == 0;  // keeps errno intact for the check
    check<IoError>(status_known, "{}: cannot be read: {}", path_, core::system_message(errno));
    check<IoError>(!S_ISDIR(status.st_mode), "{}: this is a directory, expected a file", path_);
    return S_ISREG(status.st_mode) ? std::int64_t{status.st_size} : 0;
  }

  // Fills the buffer; reads fewer bytes only at the end of the file.
  std::size_t read(std::span<std::uint8_t> buffer) {
    std::size_t total = 0;
    while (total < buffer.size()) {
      const ssize_t count = ::read(descriptor_, buffer.data() + total, buffer.size() - total);
      if (count == 0) {
        break;
      }
      if (count > 0) {
        total += static_cast<std::size_t>(count);
      } else if (errno != EINTR) {
        fail<IoError>("{}: cannot be read: {}", path_, core::system_message(errno));
      }
    }
    return total;
  }

 private:
  const std::string& path_;
  int descriptor_;
};

// A buffer for bytes of unknown number, in pieces, so that memory grows with what was read and nothing is copied before
// the end. A file's content is one piece.
class Sink {
 public:
  Sink(const std::string& path, std::int64_t max_bytes, std::int64_t expected, const Inspect& inspect)
      : path_(path), inspect_(inspect), limit_(static_cast<std::size_t>(std::max<std::int64_t>(max_bytes, 0))) {
    check_limit(static_cast<std::size_t>(expected));
    // One extra byte lets the read that fetches the content also see the end of the file.
    const std::size_t first = static_cast<std::size_t>(expected) + 1;
    pieces_.emplace_back().reserve(first);
    core::use_huge_pages(pieces_.back().data(), first);
    pieces_.back().resize(first);
  }

  // The free part of the last piece, never empty.
  std::span<std::uint8_t> room() {
    if (used_ == pieces_.back().size()) {
      check_limit(before_ + used_);
      before_ += used_;
      used_ = 0;
      pieces_.emplace_back(std::min(limit_ + 1 - before_, kChunkBytes));
    }
    return std::span(pieces_.back()).subspan(used_);
  }
  void put(std::size_t count) { used_ += count; }
  // As put(), but returns false if the rest need not be read.
  bool filled(std::size_t count) {
    const std::span<const std::uint8_t> fresh = std::span(pieces_.back()).subspan(used_, count);
    put(count);
    return count == 0 || !inspect_ || inspect_(fresh, before_ + used_);
  }

  std::vector<std::uint8_t> take() {
    check_limit(before_ + used_);
    check<IoError>(before_ + used_ > 0, "{}: the file is empty", path_);
    pieces_.back().resize(used_);
    if (before_ == 0) {
      return std::move(pieces_.back());
    }
    std::vector<std::uint8_t> whole;
    whole.reserve(before_ + used_);
    for (std::vector<std::uint8_t>& piece : pieces_) {
      whole.insert(whole.end(), piece.begin(), piece.end());
      piece = {};
    }
    return whole;
  }

 private:
  void check_limit(std::size_t bytes) const {
    check<IoError>(bytes <= limit_, "{}: more than the limit of {} bytes (max_bytes)", path_, limit_);
  }

  const std::string& path_;
  const Inspect& inspect_;
  std::size_t limit_;
  std::vector<std::vector<std::uint8_t>> pieces_;
  std::size_t before_ = 0;  // bytes in all pieces but the last
  std::size_t used_ = 0;    // bytes in the last
};

class GzipReader {
 public:
  // `head` holds the bytes of the file that were already read.
  GzipReader(const std::string& path, File& file, std::vector<std::uint8_t> head)
      : path_(path), file_(file), chunk_(std::move(head)) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    check<OutOfMemory>(inflateInit2(&stream_, kGzipOnly) == Z_OK, "{}: no memory to unpack gzip data", path);
    offer(chunk_.size());
  }
  ~GzipReader() { inflateEnd(&stream_); }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  void unpack(Sink& sink) {
    do {
      check<IoError>(*stream_.next_in == 0x1f,
                     "{}: byte {}: the gzip data ends here, but other bytes follow; the file is damaged [TDM-E510]",
                     path_, offset());
      if (!unpack_member(sink)) {
        return;
      }
      inflateReset(&stream_);
    } while (stream_.avail_in > 0 || refill());
  }

 private:
  // Returns false if the rest need not be read.
  bool unpack_member(Sink& sink) {
    int result = Z_OK;
    while (result != Z_STREAM_END) {
      const auto room = sink.room();
      const auto offered = static_cast<uInt>(std::min<std::size_t>(room.size(), 1U << 30));
      stream_.next_out = room.data();
      stream_.avail_out = offered;
      result = inflate(&stream_, Z_NO_FLUSH);
      if (!sink.filled(offered - stream_.avail_out)) {
        return false;
      }
      check<OutOfMemory>(result != Z_MEM_ERROR, "{}: no memory to unpack gzip data", path_);
      check<IoError>(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR,
                     "{}: byte {}: corrupt gzip data: {} [TDM-E510]", path_, offset(),
                     stream_.msg != nullptr ? stream_.msg : "cannot be unpacked");
      // Free room after inflate() means that this input is used up.
      if (result != Z_STREAM_END && stream_.avail_in == 0 && stream_.avail_out > 0) {
        check<IoError>(refill(), "{}: byte {}: the gzip data ends early; the file is truncated [TDM-E510]", path_,
                       offset());
      }
    }
    return true;
  }

  bool refill() {
    chunk_.resize(kChunkBytes);
    const std::size_t count = file_.read(chunk_);
    offer(count);
    return count > 0;
  }

  void offer(std::size_t count) {
    stream_.next_in = chunk_.data();
    stream_.avail_in = static_cast<uInt>(count);
    bytes_offered_ += static_cast<std::int64_t>(count);
  }

  // Offset of the next unused byte in the compressed file.
  std::int64_t offset() const { return bytes_offered_ - stream_.avail_in; }

  const std::string& path_;
  File& file_;
  std::vector<std::uint8_t> chunk_;
  z_stream stream_{};
  std::int64_t bytes_offered_ = 0;
};

}  // namespace

std::vector<std::uint8_t> read_file(const std::string& path, std::int64_t max_bytes, const Inspect& inspect,
                                    Gzip gzip) {
  File file(path);
  const std::int64_t size_hint = file.size_hint();
  std::vector<std::uint8_t> head(kChunkBytes);
  head.resize(file.read(head));
  if (gzip == Gzip::unpack && head.size() >= 2 && head[0] == 0x1f && head[1] == 0x8b) {
    Sink sink(path, max_bytes, 0, inspect);
    GzipReader(path, file, std::move(head)).unpack(sink);
    return sink.take();
  }
  if (inspect && !head.empty() && !inspect(head, head.size())) {
    return head;
  }
  Sink sink(path, max_bytes, std::max(size_hint, static_cast<std::int64_t>(head.size())), inspect);
  std::copy(head.begin(), head.end(), sink.room().begin());
  sink.put(head.size());
  std::size_t count = 0;
  do {
    const std::span<std::uint8_t> room = sink.room();
    count = file.read(room.first(std::min(room.size(), kStepBytes)));
  } while (sink.filled(count) && count > 0);
  return sink.take();
}

}  // namespace tandem::inline v0::data

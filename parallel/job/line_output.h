#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

// Internal: passes the ranks' output on, line by line.

namespace tandem::inline v0::parallel {

/// The longest line that is kept whole. A longer line is split into parts of this size.
inline constexpr std::size_t kMaxLine = std::size_t{1} << 20;

/// A queue of output for a thread that must not wait for a slow reader. Parts are written in order.
class OutputQueue {
 public:
  OutputQueue() = default;
  OutputQueue(const OutputQueue&) = delete;
  OutputQueue& operator=(const OutputQueue&) = delete;

  /// Appends whole lines. Later output never lands within these lines, even if it goes to another descriptor of the
  /// same file.
  void push(int descriptor, std::string text);
  /// The number of bytes that wait to be written.
  std::size_t size() const noexcept { return size_; }
  /// The descriptor of the next part; -1 if the queue is empty.
  int next() const noexcept { return parts_.empty() ? -1 : parts_.front().descriptor; }
  /// Writes as much as possible without blocking.
  void write_some();
  /// Writes everything, and waits for the reader for up to `seconds`.
  void flush(double seconds);
  /// errno of the first failed write, or 0. Later output to a descriptor that failed is dropped.
  int error() const noexcept { return error_; }

 private:
  struct Part {
    int descriptor;
    std::string text;
  };
  std::deque<Part> parts_;
  std::size_t written_ = 0;  // bytes of the first part
  std::size_t size_ = 0;
  std::vector<int> broken_;
  int error_ = 0;
};

/// Splits bytes into lines, adds a prefix to each, and remembers the last ones.
class LineStream {
 public:
  /// `keep` is the number of lines to remember.
  LineStream(std::string prefix, std::size_t keep) : prefix_(std::move(prefix)), keep_(keep) {}

  /// Returns the lines that `bytes` completes, ready to be written.
  std::string feed(std::string_view bytes);
  /// Returns the last line if it has no line end.
  std::string finish();
  /// The remembered lines, each cut to 400 bytes.
  const std::deque<std::string>& last_lines() const noexcept { return last_; }

 private:
  void end_line(std::string& text);

  std::string prefix_;
  std::string begun_;  // an incomplete line
  std::size_t keep_;
  std::deque<std::string> last_;
};

}  // namespace tandem::inline v0::parallel

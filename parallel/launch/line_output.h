#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

// Internal: what ranks write, passed on line by line.

namespace tandem::inline v0::parallel {

/// The longest line that is kept whole; of a longer one each part of this size is a line.
inline constexpr std::size_t kMaxLine = std::size_t{1} << 20;

/// What is to be written, in order, by a thread that must not wait for a slow reader.
class OutputQueue {
 public:
  OutputQueue() = default;
  OutputQueue(const OutputQueue&) = delete;
  OutputQueue& operator=(const OutputQueue&) = delete;

  /// Whole lines. What comes later never lands within them, even if it goes to another descriptor that is the same
  /// file.
  void push(int descriptor, std::string text);
  /// How many bytes wait.
  std::size_t size() const noexcept { return size_; }
  /// The descriptor that is next; -1: nothing waits.
  int next() const noexcept { return parts_.empty() ? -1 : parts_.front().descriptor; }
  /// Writes as much as goes without waiting.
  void write_some();
  /// Writes all, and waits; not for longer than `seconds`.
  void flush(double seconds);
  /// errno of the first write that failed; 0: none did. What goes to that descriptor later is dropped.
  int error() const noexcept { return error_; }

 private:
  struct Part {
    int descriptor;
    std::string text;
  };
  std::deque<Part> parts_;
  std::size_t written_ = 0;  // of the first part
  std::size_t size_ = 0;
  std::vector<int> broken_;
  int error_ = 0;
};

/// Bytes become lines with a prefix, and the last ones are remembered.
class LineStream {
 public:
  /// `keep`: how many lines.
  LineStream(std::string prefix, std::size_t keep) : prefix_(std::move(prefix)), keep_(keep) {}

  /// The lines that are complete now, ready to be written.
  std::string feed(std::string_view bytes);
  /// The last one, if it has no end.
  std::string finish();
  /// What was remembered, each line cut to 400 bytes.
  const std::deque<std::string>& last_lines() const noexcept { return last_; }

 private:
  void end_line(std::string_view line, std::string& text);

  std::string prefix_;
  std::string begun_;  // a line without an end
  std::size_t keep_;
  std::deque<std::string> last_;
};

}  // namespace tandem::inline v0::parallel

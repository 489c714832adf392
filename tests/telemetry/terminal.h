#pragma once

#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tandem::test {

/// A pseudo-terminal that collects everything written to fd().
class Terminal {
 public:
  explicit Terminal(int columns);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// False where the system provides no pseudo-terminals, such as in a chroot without /dev/pts.
  static bool available();

  int fd() const { return slave_; }
  void resize(int columns) const;
  /// Closes the terminal and returns all that was written.
  std::string finish();

 private:
  int master_ = -1;
  int slave_ = -1;
  std::string output_;
  std::thread reader_;
};

/// The picture on a terminal of that width after `output`.
struct Screen {
  std::vector<std::string> rows;
  bool wrapped = false;          ///< a line exceeded the right edge
  std::vector<std::string> odd;  ///< escape sequences other than "clear to the end of the line" and colours
};

/// Understands \r, \n, clearing, colours and UTF-8. Characters from U+1100 to U+11FF and from U+2E80 on take two
/// columns.
Screen show(std::string_view output, int columns);

}  // namespace tandem::test

#include "telemetry/terminal.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace tandem::test {

namespace {

constexpr char kEndMark = '\0';

}  // namespace

bool Terminal::available() {
  int master = -1;
  int slave = -1;
  if (::openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) {
    return false;
  }
  ::close(slave);
  ::close(master);
  return true;
}

Terminal::Terminal(int columns) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  if (::openpty(&master_, &slave_, nullptr, nullptr, &size) != 0) {
    std::abort();
  }
  // The thread reads all the time, because a terminal without a reader blocks its writer. It stops at the mark of
  // finish(), not when the other end closes: text written just before could then be lost.
  reader_ = std::thread([this] {
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(master_, buffer, sizeof buffer)) > 0;) {
      output_.append(buffer, static_cast<std::size_t>(got));
      if (output_.back() == kEndMark) {
        output_.pop_back();
        return;
      }
    }
  });
}

Terminal::~Terminal() {
  finish();
  ::close(master_);
}

void Terminal::resize(int columns) const {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  ::ioctl(slave_, TIOCSWINSZ, &size);
}

std::string Terminal::finish() {
  if (reader_.joinable()) {
    if (::write(slave_, &kEndMark, 1) != 1) {
      std::abort();
    }
    reader_.join();
    ::close(slave_);
  }
  return output_;
}

Screen show(std::string_view output, int columns) {
  Screen screen;
  std::vector<std::string> row;  // one entry per column; the second column of a wide character is empty
  std::size_t cursor = 0;
  const auto end_row = [&] {
    std::string text;
    for (const std::string& cell : row) {
      text += cell;
    }
    screen.rows.push_back(text.substr(0, text.find_last_not_of(' ') + 1));
    row.clear();
    cursor = 0;
  };
  for (std::size_t i = 0; i < output.size();) {
    const auto lead = static_cast<unsigned char>(output[i]);
    if (lead == '\r') {
      cursor = 0;
      ++i;
    } else if (lead == '\n') {
      end_row();
      ++i;
    } else if (lead == 0x1b) {
      const std::size_t end = output.find_first_of("ABCDEFGHJKSTfhlmnsu", i + 2);
      const std::string sequence(output.substr(i, end - i + 1));
      if (sequence == "\x1b[K") {
        row.resize(std::min(row.size(), cursor));
      } else if (sequence.back() != 'm') {
        screen.odd.push_back(sequence.substr(1));
      }
      i = end + 1;
    } else {
      const std::size_t bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
      const std::size_t width = (lead == 0xE1 && static_cast<unsigned char>(output[i + 1]) < 0x88) || lead == 0xF0 ||
                                        (lead > 0xE2 && lead < 0xF0 && output.substr(i, 3) != "\xEF\xBF\xBD")
                                    ? 2
                                    : 1;
      if (cursor + width > static_cast<std::size_t>(columns)) {
        screen.wrapped = true;
        end_row();
      }
      row.resize(std::max(row.size(), cursor + width));
      row[cursor] = output.substr(i, bytes);
      cursor += width;
      i += bytes;
    }
  }
  end_row();
  return screen;
}

}  // namespace tandem::test

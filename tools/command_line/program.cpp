#include "command_line/program.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace cli {

void narrate(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string line(text.substr(0, kMost));
  std::replace_if(line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text.size() > kMost ? line + "..." : line;
}

void print_result_json(const tandem::telemetry::Fields& result) {
  fmt::print("{}\n", tandem::telemetry::to_json(result));
}

namespace {

// A closed descriptor 0, 1 or 2 is the next that open() hands out: what is printed would end up in a data file. The
// stand-ins can only be read, so that a result that went nowhere still counts as not written.
void keep_standard_streams_apart() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) {
    ::close(fd);
  }
}

}  // namespace

int run_main(int argc, char** argv, int (*program)(int argc, char** argv)) {
  keep_standard_streams_apart();
  int code = 1;
  try {
    code = program(argc, argv);
  } catch (const std::exception& e) {  // tandem::Error is one
    narrate(fmt::format("error: {}", e.what()));
  }
  // Output waits in the buffer until here: only now does the system say that the disk is full or the pipe closed.
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) {
    const int error = errno;
    narrate(fmt::format("error: cannot write to stdout{}{}", error != 0 ? ": " : "",
                        error != 0 ? std::strerror(error) : ""));
    return 1;
  }
  return code;
}

}  // namespace cli

#include "command_line/program.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include <tandem/checkpoint/run.h>
#include <tandem/core/system_limits.h>
#include <tandem/parallel/rendezvous/environment.h>

namespace cli {

void narrate(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

std::string shown(std::string_view text, std::size_t most) {
  std::string line(text.substr(0, most));
  std::replace_if(line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text.size() > most ? line + "..." : line;
}

void print_result_json(const tandem::telemetry::Fields& result) {
  fmt::print("{}\n", tandem::telemetry::to_json(result));
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  constexpr std::string_view kName = "model name";
  for (std::string line; std::getline(file, line);) {
    if (const auto colon = line.find(": "); line.starts_with(kName) && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

namespace {

// open() reuses a closed descriptor 0, 1 or 2, and printed text would then end up in a data file. The stand-ins are
// read-only, so that a result printed to one of them still counts as not written.
void keep_standard_streams_apart() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) {
    ::close(fd);
  }
}

// All ranks stop together, and one says so.
bool is_leading_process() {
  try {
    return tandem::parallel::read_world().rank == 0;
  } catch (const tandem::Error&) {
    return true;
  }
}

}  // namespace

int run_main(int argc, char** argv, int (*program)(int argc, char** argv)) {
  keep_standard_streams_apart();
  int code = 1;
  try {
    code = program(argc, argv);
  } catch (const tandem::checkpoint::Interrupted& stopped) {
    if (is_leading_process()) {
      narrate(stopped.what());
    }
    code = 128 + stopped.signal();
  } catch (const std::exception& e) {  // includes tandem::Error
    narrate(fmt::format("error: {}", tandem::core::explain(e)));
  }
  // Output stays buffered until here: only now does the system report a full disk or a closed pipe.
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

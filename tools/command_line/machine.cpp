#include "command_line/machine.h"

#include <fstream>
#include <string_view>

namespace cli {

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

}  // namespace cli

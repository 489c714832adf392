#include "data_file.h"

#include <filesystem>
#include <system_error>

namespace example {

namespace fs = std::filesystem;

std::string data_file(const std::string& name) {
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);  // <prefix>/libexec/tandem/mlp
  const fs::path installed = program.parent_path() / "../../share/tandem/data" / name;
  return (fs::exists(installed, failed) ? installed : fs::path(TANDEM_EXAMPLE_DATA) / name).lexically_normal().string();
}

}  // namespace example

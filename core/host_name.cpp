#include <tandem/core/host_name.h>

#include <array>

#include <unistd.h>

namespace tandem::inline v0::core {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace tandem::inline v0::core

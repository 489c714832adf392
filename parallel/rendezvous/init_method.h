#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0::parallel {

/// How the ranks of a job find each other.
struct TANDEM_API InitMethod {
  /// The scheme: "env://", "tcp://host:port" or "file://path".
  enum class Kind : std::uint8_t { environment, tcp, file };

  Kind kind = Kind::environment;  // the scheme
  std::string host;               // tcp: without the brackets of an IPv6 address
  std::uint16_t port = 0;         // tcp: 1 to 65535
  std::string path;               // file: a folder

  bool operator==(const InitMethod&) const = default;
};

/// Parses "env://", "tcp://node7:29500", "tcp://[::1]:29500" or "file:///shared/folder". Throws ConfigError with the
/// expected format.
TANDEM_API InitMethod parse_init_method(std::string_view text);

}  // namespace tandem::inline v0::parallel

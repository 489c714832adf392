#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0::parallel {

/// Looks up an environment variable; returns std::nullopt if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// Looks up `name` with getenv().
TANDEM_API std::optional<std::string> process_environment(const std::string& name);

/// The secret of a job: 32 random bytes that its processes share to authenticate each other. The token travels as 64
/// hexadecimal digits in the variable TANDEM_JOB_TOKEN or in the file named by TANDEM_JOB_TOKEN_FILE. It never appears
/// in an argument, which every user of a machine can read, nor in a message. The destructor wipes its memory.
class TANDEM_API JobToken {
 public:
  /// The length of a token in bytes.
  static constexpr std::size_t kBytes = 32;

  /// Makes a new token from the system's random numbers. Throws IoError if the system has none.
  static JobToken generate();
  /// Throws ConfigError unless `digits` are 64 hexadecimal digits; white space at the end is ignored.
  static JobToken from_hex(std::string_view digits);
  /// The token in TANDEM_JOB_TOKEN or in the file TANDEM_JOB_TOKEN_FILE; std::nullopt if neither is set. Throws
  /// ConfigError if both are set or the token is malformed, and IoError if the file cannot be read. Warns if other
  /// users may read the file.
  static std::optional<JobToken> from_environment(const EnvironmentLookup& environment = process_environment);

  ~JobToken();
  JobToken(const JobToken&) = default;
  JobToken& operator=(const JobToken&) = default;

  /// Derives another secret by HMAC-SHA256. The original cannot be computed from the derived secret.
  JobToken derived(std::string_view purpose) const;

  /// The token as hexadecimal digits, for the environment of a child or a file of mode 0600.
  std::string hex() const;
  /// The bytes of the secret.
  const std::array<std::uint8_t, kBytes>& bytes() const noexcept { return bytes_; }

 private:
  JobToken() = default;

  std::array<std::uint8_t, kBytes> bytes_{};
};

}  // namespace tandem::inline v0::parallel

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

/// What a process's environment says about a variable: std::nullopt where it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// getenv.
TANDEM_API std::optional<std::string> process_environment(const std::string& name);

/// The secret of a job: 32 random bytes that its processes share, and by which they know each other. It travels in the
/// variable TANDEM_JOB_TOKEN or in the file that TANDEM_JOB_TOKEN_FILE names, as 64 hexadecimal digits; never in an
/// argument, which every user of a machine can read, and never in a message. Its memory is wiped when it goes.
class TANDEM_API JobToken {
 public:
  /// How many bytes.
  static constexpr std::size_t kBytes = 32;

  /// A new one, from the system's source of random numbers. Throws IoError where it has none.
  static JobToken generate();
  /// Throws ConfigError unless `digits` are 64 hexadecimal digits; white space at the end is ignored.
  static JobToken from_hex(std::string_view digits);
  /// The one in TANDEM_JOB_TOKEN or in the file TANDEM_JOB_TOKEN_FILE; nothing where neither is set. Throws ConfigError
  /// where both are, or where it is malformed, and IoError for a file that cannot be read. A file that others may read
  /// is a warning.
  static std::optional<JobToken> from_environment(const EnvironmentLookup& environment = process_environment);

  ~JobToken();
  JobToken(const JobToken&) = default;
  JobToken& operator=(const JobToken&) = default;

  /// For the environment of a child, or for a file of mode 0600.
  std::string hex() const;
  /// The secret itself.
  const std::array<std::uint8_t, kBytes>& bytes() const noexcept { return bytes_; }

 private:
  JobToken() = default;

  std::array<std::uint8_t, kBytes> bytes_{};
};

}  // namespace tandem::inline v0::parallel

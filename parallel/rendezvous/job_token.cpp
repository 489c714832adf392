#include <tandem/parallel/rendezvous/job_token.h>

#include <cerrno>
#include <charconv>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/core/system_limits.h>
#include <tandem/core/warning.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr const char* kVariable = "TANDEM_JOB_TOKEN";
constexpr const char* kFileVariable = "TANDEM_JOB_TOKEN_FILE";

std::string read_token_file(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    core::fail_io("read the job token in", path, errno);
  }
  check<ConfigError>(S_ISREG(status.st_mode), "{}: '{}' is no file", kFileVariable, path);
  if ((status.st_mode & 0077) != 0) {
    core::warn(fmt::format("others may read the job token in '{}': chmod 600 {}", path, path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    core::fail_io("read the job token in", path, errno);
  }
  std::string text(2 * JobToken::kBytes + 3,
                   '\0');  // the digits, a line end, and one more character to notice a longer file
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

JobToken JobToken::generate() {
  JobToken token;
  const bool got = ::getentropy(token.bytes_.data(), kBytes) == 0;  // the check below reads errno
  check<IoError>(got, "no random numbers for a job token: {}", core::system_message(errno));
  return token;
}

JobToken JobToken::from_hex(std::string_view digits) {
  digits = digits.substr(0, digits.find_last_not_of(" \t\r\n") + 1);
  check<ConfigError>(digits.size() == 2 * kBytes,
                     "job token: expected {} hexadecimal digits, got {} characters. A new one: openssl rand -hex {}",
                     2 * kBytes, digits.size(), kBytes);
  JobToken token;
  for (std::size_t i = 0; i < kBytes; ++i) {
    const char* pair = digits.data() + 2 * i;
    const auto [end, error] = std::from_chars(pair, pair + 2, token.bytes_[i], 16);
    check<ConfigError>(end == pair + 2,
                       "job token: there is no hexadecimal digit at position {}. A new one: openssl rand -hex {}",
                       end - digits.data(), kBytes);
  }
  return token;
}

std::optional<JobToken> JobToken::from_environment(const EnvironmentLookup& environment) {
  const std::optional<std::string> digits = environment(kVariable);
  const std::optional<std::string> path = environment(kFileVariable);
  check<ConfigError>(!digits || !path, "{} and {} are both set: unset one of them", kVariable, kFileVariable);
  if (!digits && !path) {
    return std::nullopt;
  }
  try {
    return from_hex(digits ? *digits : read_token_file(*path));
  } catch (Error& error) {
    error.add_context(digits ? std::string("in the variable TANDEM_JOB_TOKEN")
                             : fmt::format("in '{}', which {} names", *path, kFileVariable));
    throw;
  }
}

JobToken JobToken::derived(std::string_view purpose) const {
  JobToken token;
  const bool done =
      ::HMAC(::EVP_sha256(), bytes_.data(), static_cast<int>(kBytes),
             reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size(), token.bytes_.data(), nullptr);
  check<IoError>(done, "OpenSSL has no HMAC-SHA256: its installation is broken");
  return token;
}

JobToken::~JobToken() { ::explicit_bzero(bytes_.data(), bytes_.size()); }

std::string JobToken::hex() const { return fmt::format("{:02x}", fmt::join(bytes_, "")); }

}  // namespace tandem::inline v0::parallel

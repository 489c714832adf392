#include <tandem/parallel/rendezvous/job_token.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <sys/random.h>
#include <sys/stat.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/core/warning.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr const char* kVariable = "TANDEM_JOB_TOKEN";
constexpr const char* kFileVariable = "TANDEM_JOB_TOKEN_FILE";

// Returns -1 if `c` is not a digit.
int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

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

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

JobToken JobToken::generate() {
  JobToken token;
  std::size_t have = 0;
  while (have < kBytes) {
    const ssize_t got = ::getrandom(token.bytes_.data() + have, kBytes - have, 0);
    check<IoError>(got > 0 || errno == EINTR, "no random numbers for a job token: {}", std::strerror(errno));
    have += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  return token;
}

JobToken JobToken::from_hex(std::string_view digits) {
  while (!digits.empty() && std::string_view(" \t\r\n").find(digits.back()) != std::string_view::npos) {
    digits.remove_suffix(1);
  }
  check<ConfigError>(digits.size() == 2 * kBytes,
                     "job token: expected {} hexadecimal digits, got {} characters. A new one: openssl rand -hex {}",
                     2 * kBytes, digits.size(), kBytes);
  JobToken token;
  for (std::size_t i = 0; i < kBytes; ++i) {
    const int high = digit(digits[2 * i]);
    const int low = digit(digits[2 * i + 1]);
    check<ConfigError>(high >= 0 && low >= 0,
                       "job token: there is no hexadecimal digit at position {}. A new one: openssl rand -hex {}",
                       high < 0 ? 2 * i : 2 * i + 1, kBytes);
    token.bytes_[i] = static_cast<std::uint8_t>(16 * high + low);
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

std::string JobToken::hex() const {
  std::string text;
  for (const std::uint8_t byte : bytes_) {
    fmt::format_to(std::back_inserter(text), "{:02x}", byte);
  }
  return text;
}

}  // namespace tandem::inline v0::parallel

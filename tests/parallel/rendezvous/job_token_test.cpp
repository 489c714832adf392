#include <tandem/parallel/rendezvous/job_token.h>

#include <filesystem>

#include <gtest/gtest.h>

#include <tandem/core/warning.h>

#include "support/message.h"
#include "support/temp_dir.h"

namespace tandem::test {
namespace {

using parallel::JobToken;

const std::string kDigits = "00112233445566778899aabbccddeeFF00112233445566778899aabbccddeeff";

std::optional<JobToken> token_in(const std::string& name, const std::string& value) {
  return JobToken::from_environment(
      [&](const std::string& asked) { return asked == name ? std::optional(value) : std::nullopt; });
}

TEST(JobToken, IsMadeAtRandomAndWrittenAsDigits) {
  const JobToken one = JobToken::generate();
  EXPECT_EQ(one.hex().size(), 64U);
  EXPECT_NE(one.hex(), JobToken::generate().hex());
  EXPECT_EQ(JobToken::from_hex(one.hex()).bytes(), one.bytes());
  EXPECT_EQ(JobToken::from_hex(kDigits + "\r\n").bytes()[31], 0xff);
}

TEST(JobToken, ComesFromTheEnvironmentOrAFile) {
  EXPECT_FALSE(token_in("OTHER", kDigits).has_value());
  EXPECT_EQ(token_in("TANDEM_JOB_TOKEN", kDigits)->bytes(), JobToken::from_hex(kDigits).bytes());
  const TempDir folder;
  const std::string path = folder.write("token", kDigits + "\n");
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  EXPECT_EQ(token_in("TANDEM_JOB_TOKEN_FILE", path)->bytes(), JobToken::from_hex(kDigits).bytes());
}

TEST(JobToken, InAFileThatOthersMayReadIsAWarning) {
  const TempDir folder;
  const std::string path = folder.write("token", kDigits);
  std::filesystem::permissions(path, std::filesystem::perms(0644));
  std::string warning;
  set_warning_handler([&](const std::string& said) { warning = said; });
  token_in("TANDEM_JOB_TOKEN_FILE", path);
  set_warning_handler({});
  EXPECT_EQ(warning, "others may read the job token in '" + path + "': chmod 600 " + path);
}

// The error message contains no digit of the token.
TEST(JobToken, ThatIsMalformedIsNotShown) {
  EXPECT_EQ(message_of<ConfigError>([] { token_in("TANDEM_JOB_TOKEN", "secret"); }),
            "job token: expected 64 hexadecimal digits, got 6 characters. A new one: openssl rand -hex 32\n"
            "  in the variable TANDEM_JOB_TOKEN");
  std::string wrong = kDigits;
  wrong[41] = 'g';
  EXPECT_EQ(message_of<ConfigError>([&] { token_in("TANDEM_JOB_TOKEN", wrong); }),
            "job token: there is no hexadecimal digit at position 41. A new one: openssl rand -hex 32\n"
            "  in the variable TANDEM_JOB_TOKEN");
  const TempDir folder;
  const std::string path = folder.write("token", std::string(100'000, 'a'));
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  EXPECT_EQ(message_of<ConfigError>([&] { token_in("TANDEM_JOB_TOKEN_FILE", path); }),
            "job token: expected 64 hexadecimal digits, got 67 characters. A new one: openssl rand -hex 32\n"
            "  in '" +
                path + "', which TANDEM_JOB_TOKEN_FILE names");
  EXPECT_EQ(message_of<IoError>([&] { token_in("TANDEM_JOB_TOKEN_FILE", folder.file("none")); }),
            "cannot read the job token in '" + folder.file("none") +
                "': No such file or directory\n"
                "  in '" +
                folder.file("none") + "', which TANDEM_JOB_TOKEN_FILE names");
  EXPECT_EQ(message_of<ConfigError>([&] { JobToken::from_environment([](const std::string&) { return kDigits; }); }),
            "TANDEM_JOB_TOKEN and TANDEM_JOB_TOKEN_FILE are both set: unset one of them");
}

}  // namespace
}  // namespace tandem::test

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/parallel/rendezvous/job_token.h>

#include "support/process.h"

// Ranks on separate hosts, which network namespaces model (hosts.sh), with links of 1 Gbit/s.

namespace tandem::test {
namespace {

constexpr double kLineRate = 1e9 / 8;  // bytes per second and direction
constexpr double kBytes = 25 << 20;

class Hosts : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "tandem-hosts-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    ::setenv("TANDEM_JOB_TOKEN", parallel::JobToken::generate().hex().c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("TANDEM_JOB_TOKEN");
    ::unsetenv("RANKS_PER_HOST");
    ::unsetenv("WIRE");
    std::filesystem::remove_all(folder_);
  }

  // Returns false if the system does not allow namespaces; the test is then skipped.
  bool run(int hosts, const std::string& event, std::vector<std::string> program, int ranks_per_host = 1,
           const std::string& links = "1gbit") {
    ::setenv("WIRE", HOSTS_WIRE, 1);
    ::setenv("RANKS_PER_HOST", std::to_string(ranks_per_host).c_str(), 1);
    ranks_ = hosts * ranks_per_host;
    std::vector<std::string> arguments{HOSTS_SCRIPT, std::to_string(hosts), links, folder_.string(), event, HOSTS_RANK};
    arguments.insert(arguments.end(), program.begin(), program.end());
    outcome_ = run_program("/bin/bash", arguments, folder_.string());
    return outcome_.exit_code != 77;
  }

  std::string text(const std::string& file) const {
    std::ifstream stream(folder_ / file);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  }
  std::string of_rank(int rank) const { return text(fmt::format("rank{}", rank)); }
  std::string story() const {
    std::string story = fmt::format("exit code {}, signal {}\n{}", outcome_.exit_code, outcome_.signal, outcome_.err);
    for (int rank = 0; rank < ranks_; ++rank) {
      story += fmt::format("--- rank {}, code {}{}{}", rank, text(fmt::format("code{}", rank)), of_rank(rank),
                           text(fmt::format("stderr{}", rank)));
    }
    return story;
  }
  /// Seconds from the event to the rank's error.
  double time_to_error(int rank) const {
    std::istringstream line(of_rank(rank));
    std::string word;
    std::int64_t error = 0;
    line >> word >> error;
    return word == "error" ? static_cast<double>(error - std::stoll(text("event"))) * 1e-9 : 1e9;
  }

  std::filesystem::path folder_;
  Outcome outcome_;
  int ranks_ = 0;
};

// A ring sends and receives 2 (n - 1) / n of the bytes on every link. The time is only printed: it depends on what else
// the machine does.
void expect_bytes_of_a_ring(int hosts, const std::string& said, const std::string& story) {
  double seconds = 0;
  double sent = 0;
  ASSERT_EQ(std::sscanf(said.c_str(), "seconds %lf sent %lf", &seconds, &sent), 2) << story;
  const double bytes = kBytes * 2 * (hosts - 1) / hosts;
  fmt::print("{} hosts: {:.1f} ms, {:.1f} % of the line rate\n", hosts, 1e3 * seconds,
             100 * bytes / kLineRate / seconds);
  EXPECT_LT(bytes / kLineRate / seconds, 1.02) << "faster than the link: it does not limit\n" << story;
  EXPECT_GT(sent, 0.98 * bytes) << story;
  EXPECT_LT(sent, 1.15 * bytes) << story;  // with headers and what is sent twice
}

TEST_F(Hosts, TwoUseTheLink) {
  if (!run(2, "none", {"rate", "7"})) {
    GTEST_SKIP() << outcome_.err;
  }
  expect_bytes_of_a_ring(2, of_rank(0), story());
}

TEST_F(Hosts, ThreeUseTheLinks) {
  if (!run(3, "none", {"rate", "7"})) {
    GTEST_SKIP() << outcome_.err;
  }
  expect_bytes_of_a_ring(3, of_rank(0), story());
}

// The ranks of a host reduce in shared memory, so the link carries what it carries for one rank on each host.
TEST_F(Hosts, TwoOfTwoRanksUseTheLinkAsTwoOfOneRank) {
  if (!run(2, "none", {"rate", "7"}, 2)) {
    GTEST_SKIP() << outcome_.err;
  }
  expect_bytes_of_a_ring(2, of_rank(0), story());
}

// Heartbeats are small and pass, so only the silence of the call shows the trouble.
TEST_F(Hosts, ALinkThatLosesLargePacketsGetsALineAndEndsInTheLimit) {
  if (!run(2, "none", {"once", "6"}, 1, "lose@1400")) {
    GTEST_SKIP() << outcome_.err;
  }
  for (const int rank : {0, 1}) {
    const std::string line = text(fmt::format("stderr{}", rank));
    EXPECT_NE(line.find(fmt::format("tandem: warning: rank {} has waited 5", rank)), std::string::npos) << story();
    EXPECT_NE(
        line.find(fmt::format(" s for rank {} in all_reduce f32 [262144] sum (#0): it is in the call, but their data "
                              "does not get through, as when the network between loses large packets (MTU), or it "
                              "waits for another rank itself. It "
                              "gives up after 6 s",
                              1 - rank)),
        std::string::npos)
        << story();
    EXPECT_NE(of_rank(rank).find("has not sent its part within 6 s"), std::string::npos) << story();
  }
}

TEST_F(Hosts, AllRanksBehindACutLinkEndInTheLimit) {
  if (!run(2, "cut@2", {"loop", "30", "2"}, 2)) {
    GTEST_SKIP() << outcome_.err;
  }
  for (const int rank : {0, 1, 2, 3}) {
    EXPECT_LE(time_to_error(rank), 2.0 + 0.5 + 0.5) << story();
    EXPECT_NE(of_rank(rank).find(rank < 2 ? " peer_lost " : "error "), std::string::npos) << story();
  }
}

TEST_F(Hosts, BothSidesOfACutLinkEndInTheLimit) {
  if (!run(2, "cut@2", {"loop", "30", "2"})) {
    GTEST_SKIP() << outcome_.err;
  }
  for (const int rank : {0, 1}) {
    EXPECT_LE(time_to_error(rank), 2.0 + 0.5 + 0.5) << story();  // the limit, and a heartbeat that had just arrived
  }
  EXPECT_NE(of_rank(0).find(" peer_lost 1 "), std::string::npos) << story();
  EXPECT_NE(of_rank(1).find(" peer_lost 0 "), std::string::npos) << story();
}

TEST_F(Hosts, AllSidesOfACutLinkEndInTheLimit) {
  if (!run(3, "cut@2", {"loop", "30", "2"})) {
    GTEST_SKIP() << outcome_.err;
  }
  for (const int rank : {0, 1, 2}) {
    EXPECT_LE(time_to_error(rank), 2.0 + 0.5 + 0.5) << story();
  }
  EXPECT_NE(of_rank(0).find(" peer_lost 2 "), std::string::npos) << story();
  EXPECT_NE(of_rank(1).find(" peer_lost 2 "), std::string::npos) << story();
}

TEST_F(Hosts, AShortCutIsSurvived) {
  if (!run(2, "flap@2", {"loop", "6", "10"})) {
    GTEST_SKIP() << outcome_.err;
  }
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(of_rank(rank).starts_with("done ")) << story();
  }
}

// The connection to the store takes four round trips, the meetings and the connections between ranks eight.
TEST_F(Hosts, MeetWithinAFewRoundTripsHoweverLongTheseTake) {
  constexpr double kRoundTrip = 0.6;
  if (!run(2, "none", {"join"}, 1, "delay@300")) {
    GTEST_SKIP() << outcome_.err;
  }
  for (const int rank : {0, 1}) {
    std::istringstream line(of_rank(rank));
    std::string word;
    double seconds = 1e9;
    line >> word >> seconds;
    EXPECT_LT(seconds, 10 * kRoundTrip + 6) << story();
    RecordProperty(fmt::format("seconds{}", rank), std::to_string(seconds));
  }
}

}  // namespace
}  // namespace tandem::test

#include <memory>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/job/launched.h"

namespace tandem::test {
namespace {

using ::testing::HasSubstr;

TEST(ManyLaunches, AHundredAtOnceKeepToThemselves) {
  std::vector<std::unique_ptr<Launched>> jobs;
  for (int job = 0; job < 100; ++job) {
    jobs.push_back(std::make_unique<Launched>(
        std::vector<std::string>{"-n", "2", RANK_PROGRAM, "meet", fmt::format("job{}", job)}));
  }
  for (int job = 0; job < 100; ++job) {
    const Outcome outcome = jobs[static_cast<std::size_t>(job)]->wait(100s);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_THAT(outcome.out, HasSubstr(fmt::format("[{}] met 2 ranks of job{}\n", rank, job)));
    }
  }
}

}  // namespace
}  // namespace tandem::test

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.h"

// Tests of the sample gradient_penalty.

namespace example {
namespace {

using ::testing::HasSubstr;

class GradientPenalty : public Samples {
 protected:
  Outcome run(const Arguments& arguments) const {
    return run_program(GRADIENT_PENALTY_PROGRAM, arguments, dir_.path());
  }
};

TEST_F(GradientPenalty, FindsAllModesOfTheRing) {
  const Outcome outcome = run(
      {"--epochs", "2", "--hidden", "32", "--batch-size", "128", "--lr", "3e-3", "--quiet", "--json", "--out", "run"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto record = parse_record(lines_of(outcome.out).back());
  EXPECT_GE(record.number("modes"), 6);
  EXPECT_GT(record.number("near"), 0.3);
  EXPECT_EQ(metrics("run").size(), 2U);
  EXPECT_THAT(text("run/gradient_penalty.svg"), HasSubstr("the critic"));
}

}  // namespace
}  // namespace example

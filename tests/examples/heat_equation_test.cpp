#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.h"

// Tests of the sample heat_equation.

namespace example {
namespace {

using ::testing::HasSubstr;

class HeatEquation : public Samples {
 protected:
  Outcome run(const Arguments& arguments) const { return run_program(HEAT_EQUATION_PROGRAM, arguments, dir_.path()); }
};

TEST_F(HeatEquation, IsSolvedFromTheEquationAlone) {
  const Arguments arguments{"--epochs", "3",       "--hidden", "16",    "--batch-size",
                            "256",      "--quiet", "--json",   "--out", "run"};
  const Outcome outcome = run(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_LT(parse_record(lines_of(outcome.out).back()).number("relative_error"), 0.1);
  EXPECT_EQ(metrics("run").size(), 3U);
  EXPECT_THAT(text("run/heat_equation.svg"), HasSubstr("the network"));
  EXPECT_EQ(run({"--data", "."}).exit_code, 2) << "there is none";
}

}  // namespace
}  // namespace example

#pragma once

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/process.h"

namespace tandem::test {

/// Checks that --help of `program` shows usage and examples, in lines that fit a terminal.
inline void expect_help_that_fits(const std::string& program, const std::string& folder) {
  const Outcome outcome = run_program(program, {"--help"}, folder);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, ::testing::HasSubstr("Examples:"));
  for (const std::string& line : lines_of(outcome.out)) {
    EXPECT_LE(line.size(), 80U) << line;
  }
}

}  // namespace tandem::test

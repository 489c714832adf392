#include "samples.h"

#include <csignal>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Tests of output that cannot be written: a lost result must not look like success, and nothing may hang.

namespace example {
namespace {

using ::testing::HasSubstr;

const Arguments kShort{"--epochs", "1", "--hidden", "8", "--json", "--out", "run"};

TEST_F(Samples, ReaderThatWentAwayEndsTheProgram) {  // mlp | head -0
  const Outcome outcome = run_program(MLP_PROGRAM, kShort, dir_.path(), Stream::broken_pipe);
  EXPECT_EQ(outcome.signal, SIGPIPE) << "exit code " << outcome.exit_code;
  EXPECT_EQ(metrics("run").size(), 1u) << "the run folder is whole all the same";
  EXPECT_THAT(text("run/curves.svg"), HasSubstr("</svg>"));
}

TEST_F(Samples, ClosedStdoutIsAFailure) {  // mlp >&-
  const Outcome outcome = run_program(MLP_PROGRAM, with(kShort, {"--quiet"}), dir_.path(), Stream::closed);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "error: cannot write to stdout: Bad file descriptor\n");
  EXPECT_EQ(metrics("run").size(), 1u) << "results must not end up in a file that took the place of stdout";
  EXPECT_EQ(run_program(MLP_PROGRAM, {"--help"}, dir_.path(), Stream::closed).exit_code, 1);
}

TEST_F(Samples, ClosedStderrIsNoFailure) {  // mlp 2>&-
  const Outcome outcome = run_program(MLP_PROGRAM, kShort, dir_.path(), Stream::captured, Stream::closed);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("test accuracy: "));
  EXPECT_EQ(metrics("run").size(), 1u) << "progress must not end up in a file that took the place of stderr";
  EXPECT_EQ(run_program(MLP_PROGRAM, {"--frobnicate"}, dir_.path(), Stream::captured, Stream::closed).exit_code, 2);
}

}  // namespace
}  // namespace example

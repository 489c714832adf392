#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "record.h"
#include "support/message.h"
#include "support/process.h"
#include "support/temp_dir.h"

// Helpers shared by the tests of the samples. MLP_PROGRAM and the like are the built programs.

namespace example {

using tandem::test::lines_of;
using tandem::test::Outcome;
using tandem::test::run_program;
using tandem::test::Stream;
using Arguments = std::vector<std::string>;

/// A test that runs samples in a folder of its own.
class Samples : public ::testing::Test {
 protected:
  Samples() { ::setenv("TANDEM_ADVICE", "0", 1); }  // what they say unasked depends on how busy the machine is
  Outcome mlp(const Arguments& arguments) const { return run_program(MLP_PROGRAM, arguments, dir_.path()); }
  Outcome regression(const Arguments& arguments) const {
    return run_program(REGRESSION_PROGRAM, arguments, dir_.path());
  }

  std::string file(const std::string& name) const { return dir_.file(name); }
  std::string text(const std::string& name) const { return tandem::test::read_text(file(name)); }
  void write(const std::string& name, const std::string& content) const {
    tandem::test::write_text(file(name), content);
  }

  /// The lines of a run folder's metrics.jsonl, without fields that depend on the clock.
  std::vector<Record> metrics(const std::string& run) const {
    std::vector<Record> read;
    for (const std::string& line : lines_of(text(run + "/metrics.jsonl"))) {
      read.push_back(parse_record(line));
      std::erase_if(read.back().fields, [](const auto& field) { return field.first == "train_seconds"; });
    }
    return read;
  }

  tandem::test::TempDir dir_;
};

inline Arguments with(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// Expects a failure with one line on stderr and nothing on stdout. Exit code 1 means a failure, 2 a wrong command
/// line.
inline void expect_error(const Outcome& outcome, const std::string& text, int exit_code = 1) {
  EXPECT_EQ(outcome.exit_code, exit_code) << "signal " << outcome.signal;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(tandem::test::without_code(outcome.err), "error: " + text + "\n");
}

}  // namespace example

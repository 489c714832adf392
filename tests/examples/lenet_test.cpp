#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.h"

namespace example {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class LeNetSample : public Samples {
 protected:
  Outcome lenet(const Arguments& arguments) const { return run_program(LENET_PROGRAM, arguments, dir_.path()); }
};

TEST_F(LeNetSample, LearnsTheBundledDigitsAndDrawsWhatItLearned) {
  const Outcome outcome = lenet({"--epochs", "1", "--quiet", "--json", "--out", "run"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, StartsWith("test accuracy: "));
  EXPECT_GT(parse_record(lines_of(outcome.out).back()).number("test_accuracy"), 0.8);
  const std::string picture = text("run/lenet.svg");
  for (const char* title : {"First layer", "Rows: the class", "The ten least certain"}) {
    EXPECT_THAT(picture, HasSubstr(title));
  }
  EXPECT_EQ(metrics("run").size(), 1U);
  // A run that is over has its result again.
  EXPECT_EQ(lenet({"--epochs", "1", "--quiet", "--json", "--out", "run"}).out, outcome.out);
}

TEST_F(LeNetSample, LearnsInF16) {
  const Outcome outcome = lenet({"--epochs", "1", "--precision", "f16", "--json", "--out", "run"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("steps left out\n"));
  EXPECT_GT(parse_record(lines_of(outcome.out).back()).number("test_accuracy"), 0.8);
}

TEST_F(LeNetSample, RefusesWhatItCannotRead) {
  expect_error(lenet({"--data", "nowhere"}), "--data 'nowhere': not a folder; expected one with MNIST-style IDX files");
  EXPECT_EQ(lenet({"--epochs", "0"}).exit_code, 2);
}

}  // namespace
}  // namespace example

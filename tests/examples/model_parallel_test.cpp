#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.h"

// Tests of the samples whose model lives on several devices or ranks.

namespace example {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ModelParallelSamples : public Samples {
 protected:
  // The output of a run of one epoch, which learns something.
  std::string output_of(const char* program, const Arguments& more) const {
    const Outcome outcome = run_program(program, with({"--epochs", "1", "--quiet"}, more), dir_.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, IsEmpty());
    EXPECT_THAT(outcome.out, ContainsRegex("test accuracy: (8|9)[0-9].[0-9][0-9] %\n$"));
    return outcome.out;
  }
};

TEST_F(ModelParallelSamples, ModelParallelLearnsOnTwoDevices) {
  EXPECT_THAT(output_of(MODEL_PARALLEL_PROGRAM, {"--first", "cpu:1", "--second", "cpu:0"}),
              HasSubstr("first part on cpu:1, second part on cpu:0\n"));
}

TEST_F(ModelParallelSamples, PipelineLearnsAndReports) {
  EXPECT_THAT(output_of(PIPELINE_PROGRAM, {"--stages", "3", "--schedule", "gpipe"}),
              AllOf(HasSubstr("stage  layers"), HasSubstr("pipeline: 3 stages, 4 micro-batches, GPipe"),
                    HasSubstr("33.3 % of the schedule")));
  EXPECT_EQ(run_program(PIPELINE_PROGRAM, {"--stages", "0"}, dir_.path()).exit_code, 2);
}

TEST_F(ModelParallelSamples, HybridLearnsOnAGridOfRanks) {
  EXPECT_THAT(output_of(HYBRID_PROGRAM, {}), HasSubstr("2 pipelines of 2 stages; the first:\npipeline: 2 stages"));
}

}  // namespace
}  // namespace example

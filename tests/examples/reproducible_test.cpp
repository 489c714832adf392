#include "samples.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

// Tests that equal seeds give equal runs, to the last digit, on any number of threads and any CPU device.

namespace example {
namespace {

class Reproducible : public Samples, public ::testing::WithParamInterface<const char*> {
 protected:
  // The metrics of a short run with the sample's default sizes, which are large enough to be split over threads.
  std::vector<Record> run(const Arguments& more, int line = __builtin_LINE()) {
    const std::string folder = "run" + std::to_string(++runs_);
    const Arguments arguments = with({"--epochs", "2", "--quiet", "--out", folder}, more);
    const Outcome outcome = std::string(GetParam()) == "mlp" ? mlp(arguments) : regression(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << "line " << line << ": " << outcome.err;
    std::vector<Record> read = metrics(folder);
    EXPECT_EQ(read.size(), 2u) << "line " << line;
    return read;
  }

 private:
  int runs_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Programs, Reproducible, ::testing::Values("mlp", "regression"),
                         [](const auto& program) { return std::string(program.param); });

TEST_P(Reproducible, SameSeedSameNumbers) {
  const std::vector<Record> first = run({"--seed", "3"});
  EXPECT_EQ(run({"--seed", "3"}), first);
  EXPECT_EQ(run({"--seed", "3", "--threads", "1"}), first);
  EXPECT_EQ(run({"--seed", "3", "--threads", "2"}), first);
  EXPECT_EQ(run({"--seed", "3", "--threads", "5"}), first);
  EXPECT_EQ(run({"--seed", "3", "--device", "cpu:1"}), first);
}

TEST_P(Reproducible, CapturedStepsGiveTheSameNumbers) { EXPECT_EQ(run({"--captured"}), run({})); }

TEST_P(Reproducible, PrecisionsOf16BitsLearnAlmostTheSame) {
  const double loss = run({})[0].number("train_loss");
  for (const char* precision : {"bf16", "f16"}) {
    const std::vector<Record> got = run({"--precision", precision});
    EXPECT_EQ(run({"--precision", precision, "--captured"}), got) << precision;
    EXPECT_NE(got[0].number("train_loss"), loss) << precision;
    EXPECT_NEAR(got[0].number("train_loss"), loss, 0.05 * loss) << precision;
  }
}

TEST_P(Reproducible, AnotherSeedOtherNumbers) {
  EXPECT_NE(run({"--seed", "1"})[0].at("train_loss"), run({"--seed", "2"})[0].at("train_loss"));
}

TEST_P(Reproducible, EveryOptimizerLearnsInItsOwnWay) {
  std::vector<double> losses;
  for (const char* optimizer : {"sgd", "adam", "adamw"}) {
    // The decay is large enough to tell the optimisers apart: adam adds it to the gradient, adamw applies it
    // separately.
    const Arguments flags{"--optimizer", optimizer, "--lr", "0.003", "--weight-decay", "0.1"};
    const std::vector<Record> epochs = run(flags);
    EXPECT_EQ(run(with(flags, {"--threads", "1"})), epochs) << optimizer;
    EXPECT_LT(epochs[1].number("train_loss"), epochs[0].number("train_loss")) << optimizer;
    losses.push_back(epochs[1].number("train_loss"));
  }
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NE(losses[1], losses[2]);
}

}  // namespace
}  // namespace example

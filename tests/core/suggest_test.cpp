#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>

namespace tandem::core {
namespace {

const std::vector<std::string> kFlags{"--batch-size", "--epochs", "--hidden", "--lr", "--optimizer", "--seed"};

TEST(Nearest, FindsWhatWasMeant) {
  EXPECT_EQ(nearest("--batchsize", kFlags), "--batch-size");
  EXPECT_EQ(nearest("--epoch", kFlags), "--epochs");
  EXPECT_EQ(nearest("--optimiser", kFlags), "--optimizer");
  EXPECT_EQ(nearest("--sede", kFlags), "--seed");
}

TEST(Nearest, FindsAnExactMatch) { EXPECT_EQ(nearest("--hidden", kFlags), "--hidden"); }

TEST(Nearest, SaysNothingWhenNothingIsClose) {
  EXPECT_EQ(nearest("--learning-rate", kFlags), "");
  EXPECT_EQ(nearest("zzz", kFlags), "");
  EXPECT_EQ(nearest("", kFlags), "");
}

TEST(Nearest, WithoutCandidatesIsEmpty) { EXPECT_EQ(nearest("word", {}), ""); }

TEST(Nearest, ShortWordsMayDifferInOneLetter) {
  const std::vector<std::string> words{"ab", "xyz"};
  EXPECT_EQ(nearest("ac", words), "ab");
  EXPECT_EQ(nearest("cd", words), "");
}

TEST(Nearest, AThirdOfTheLettersIsTheLimit) {
  const std::vector<std::string> words{"abcdef"};
  EXPECT_EQ(nearest("abcdxx", words), "abcdef") << "2 of 6";
  EXPECT_EQ(nearest("abcxxx", words), "") << "3 of 6";
}

TEST(Nearest, TakesTheClosestAndThenTheFirst) {
  const std::vector<std::string> words{"weights", "weigth", "weight"};
  EXPECT_EQ(nearest("weight", words), "weight");
  const std::vector<std::string> equally{"bias1", "bias2"};
  EXPECT_EQ(nearest("bias", equally), "bias1");
}

}  // namespace
}  // namespace tandem::core

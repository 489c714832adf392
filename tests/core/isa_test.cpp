#include <tandem/core/isa.h>

#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include <tandem/core/error.h>

namespace tandem::core {
namespace {

void exit_with_isa(const char* text) {
  setenv("TANDEM_CPU_ISA", text, 1);
  try {
    std::_Exit(static_cast<int>(isa()));
  } catch (const ConfigError& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(99);
  }
}

TEST(Isa, TheBaselineIsAlwaysThereAndComesFirst) {
  ASSERT_FALSE(available_isas().empty());
  EXPECT_EQ(available_isas().front(), Isa::baseline);
  EXPECT_STREQ(to_string(Isa::baseline), "baseline");
}

// The variable is read once, so each value needs a new process.
TEST(IsaDeathTest, CanBeForcedByTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const Isa isa : available_isas()) {
    EXPECT_EXIT(exit_with_isa(to_string(isa)), ::testing::ExitedWithCode(static_cast<int>(isa)), "");
  }
  for (const char* text : {"sse9", "", "AVX2", "avx2 "}) {
    EXPECT_EXIT(exit_with_isa(text), ::testing::ExitedWithCode(99),
                "TANDEM_CPU_ISA='" + std::string(text) + "': expected one that this machine has: baseline");
  }
}

}  // namespace
}  // namespace tandem::core

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "help.h"
#include "support/process.h"
#include "support/temp_dir.h"

// Tests of the cases and of the output of kernel_bench, not of speed.

namespace tandem::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

const std::vector<std::string> kQuick{"--blocks", "1", "--block-ms", "0", "--sizes", "tiny"};

TEST(KernelBench, RunsEveryFamilyOnTinyData) {
  const TempDir dir;
  std::vector<std::string> arguments = kQuick;
  arguments.push_back("--benchmark_out=" + dir.path() + "/kernels.json");
  const Outcome outcome = run_program(KERNEL_BENCH, arguments, dir.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const nlohmann::json results = nlohmann::json::parse(std::ifstream(dir.path() + "/kernels.json"));
  std::set<std::string> families;
  for (const nlohmann::json& result : results.at("benchmarks")) {
    const std::string name = result.at("name");
    families.insert(name.substr(0, name.find('/')));
    EXPECT_GT(result.at("us"), 0) << name;
  }
  // The families of kernels/CMakeLists.txt.
  std::vector<std::string> expected;
  std::istringstream names(KERNEL_FAMILIES);
  for (std::string name; std::getline(names, name, ',');) {
    expected.push_back(name);
  }
  EXPECT_THAT(families, IsSupersetOf(expected));
}

TEST(KernelBench, PrintsATableOfTheChosenCases) {
  const TempDir dir;
  std::vector<std::string> arguments = kQuick;
  arguments.emplace_back("--benchmark_filter=scan/.*/f32");
  const Outcome outcome = run_program(KERNEL_BENCH, arguments, dir.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("cumsum of rows"));
  EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("softmax")));
}

TEST(KernelBench, HasAHelpThatFits) {
  const TempDir dir;
  expect_help_that_fits(KERNEL_BENCH, dir.path());
}

}  // namespace
}  // namespace tandem::test

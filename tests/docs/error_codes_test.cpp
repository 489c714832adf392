#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "docs/markdown.h"

// Checks the codes of errors: docs/errors.md lists each that tandem writes, once, and a test has its text.

namespace tandem::docs {
namespace {

namespace fs = std::filesystem;

std::multiset<std::string> matches(const std::string& text, const std::regex& pattern) {
  std::multiset<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
    found.insert((*match)[1]);
  }
  return found;
}

/// The codes that the sources below `folder` write.
std::set<std::string> codes_in(const std::string& folder) {
  static const std::regex code(R"(\[(TDM-[EW][0-9]{3})\])");
  std::set<std::string> codes;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(TANDEM_SOURCE_DIR) / folder)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".cpp" || ending == ".h" || ending == ".cu") {
      const std::multiset<std::string> found = matches(read_file(entry.path().string()), code);
      codes.insert(found.begin(), found.end());
    }
  }
  return codes;
}

TEST(DocsErrors, HaveEachCodeOnceAndATestHasItsText) {
  std::set<std::string> written;
  for (const char* layer : {"autograd", "checkpoint", "core", "data", "graph", "kernels", "nn", "optim", "parallel",
                            "telemetry", "tensor", "tools"}) {
    written.merge(codes_in(layer));
  }
  const std::multiset<std::string> rows =
      matches(read_file(TANDEM_SOURCE_DIR "/docs/errors.md"), std::regex(R"(\n\| (TDM-[EW][0-9]{3}) \|)"));
  EXPECT_EQ(rows, std::multiset<std::string>(written.begin(), written.end()));
  const std::set<std::string> tested = codes_in("tests");
  for (const std::string& code : written) {
    EXPECT_TRUE(tested.contains(code)) << code << " has no test of its text";
  }
  EXPECT_GE(written.size(), 50U);
}

}  // namespace
}  // namespace tandem::docs

#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "docs/markdown.h"

// Checks code in the documentation that names its source: ```cpp kernels/scan.h must appear in that file, line by line.

namespace tandem::docs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string source(const std::string& path) { return read_file(std::string(TANDEM_SOURCE_DIR) + "/" + path); }

TEST(DocsCode, StandsInTheFilesThatItNames) {
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TANDEM_SOURCE_DIR "/docs")) {
    if (entry.path().extension() != ".md") continue;
    for (const Block& block : parse_markdown(read_file(entry.path().string())).blocks) {
      if (block.argument.find('/') == std::string::npos) continue;
      ++compared;
      EXPECT_NE(("\n" + source(block.argument)).find("\n" + block.text), std::string::npos)
          << entry.path().filename().string() << ":" << block.line << ": not in " << block.argument << ":\n"
          << block.text;
    }
  }
  EXPECT_GE(compared, 10);
}

// Where overloads share a comment, the reference would show the same words for each.
TEST(DocsReference, HasALineForEachMethodOfTensor) {
  const std::string text = source("tensor/tensor.h");
  std::istringstream header(text.substr(text.find("class TANDEM_API Tensor {")));
  const std::regex method("  (Tensor&?|bool|void|HookHandle|std::vector<Tensor>) ([a-z_0-9]+)\\(.*");
  int methods = 0;
  bool is_documented = false;
  for (std::string line; std::getline(header, line) && line != " private:";) {
    if (std::regex_match(line, method)) {
      ++methods;
      EXPECT_TRUE(is_documented) << line;
    }
    is_documented = line.starts_with("  ///") || (is_documented && line.starts_with("  template <"));
  }
  EXPECT_GE(methods, 120);
}

TEST(DocsMarkdown, BlocksLoseTheIndentationOfTheirFence) {
  const Markdown got = parse_markdown("a\n  ```cpp core/a.h\n  int a;\n\n    int b;\n  ```\n```\nplain\n```\n");
  ASSERT_EQ(got.blocks.size(), 2U);
  EXPECT_EQ(got.blocks[0].line, 2);
  EXPECT_EQ(got.blocks[0].language, "cpp");
  EXPECT_EQ(got.blocks[0].argument, "core/a.h");
  EXPECT_EQ(got.blocks[0].text, "int a;\n\n  int b;\n");
  EXPECT_EQ(got.blocks[1].language, "");
  EXPECT_THROW(parse_markdown("```cpp\nint a;\n"), std::runtime_error);
}

TEST(DocsMarkdown, RowsAreThoseOfTablesWithTwoColumns) {
  const Markdown got = parse_markdown(
      "| PyTorch | tandem |\n| --- | --- |\n| `a` | `b`, `c \\| d` |\n\n| x | y | z |\n| - | - | - |\n| 1 | 2 | 3 |\n");
  ASSERT_EQ(got.rows.size(), 1U);
  EXPECT_EQ(got.rows[0].line, 3);
  EXPECT_EQ(got.rows[0].left, "`a`");
  EXPECT_THAT(code_spans(got.rows[0].right), ElementsAre("b", "c | d"));
  EXPECT_THAT(code_spans("prose"), IsEmpty());
  EXPECT_THROW(code_spans("`open"), std::runtime_error);
}

}  // namespace
}  // namespace tandem::docs

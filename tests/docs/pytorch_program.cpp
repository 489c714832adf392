// Generates a test program from docs/pytorch.md. Each row of its tables becomes a test that runs the C++ code on the
// right, with the names of the block "names" as members. The block "program" becomes a test too.
//
//     pytorch_program docs/pytorch.md out.cpp

#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>

#include "docs/markdown.h"

namespace {

using namespace tandem::docs;

const Block& block_called(const Markdown& markdown, const std::string& name) {
  for (const Block& block : markdown.blocks) {
    if (block.language == "cpp" && block.argument == name) return block;
  }
  throw std::runtime_error("there is no block ```cpp " + name);
}

std::string program_of(const Markdown& markdown, const std::string& source) {
  const auto line = [&](int number) { return "#line " + std::to_string(number) + " \"" + source + "\"\n"; };
  const Block& names = block_called(markdown, "names");
  const Block& program = block_called(markdown, "program");
  std::string text =
      "#include <cmath>\n#include <cstdio>\n#include <iostream>\n#include <memory>\n#include <span>\n#include "
      "<vector>\n"
      "#include <gtest/gtest.h>\n#include <tandem/tandem.h>\n"
      "namespace {\nusing namespace tandem;\n"
      "struct PyTorchRow : ::testing::Test {\n" +
      line(names.line + 1) + names.text + "};\nnamespace whole {\n" + line(program.line + 1) + program.text +
      "}\nTEST(PyTorchProgram, Runs) { whole::run(); }\n";
  for (const Row& row : markdown.rows) {
    const std::vector<std::string> spans = code_spans(row.right);
    if (spans.empty()) continue;
    text += "TEST_F(PyTorchRow, Line" + std::to_string(row.line) + ") {\n" + line(row.line);
    for (const std::string& span : spans) {
      text += span + (span.ends_with(';') || span.ends_with('}') ? " " : "; ");
    }
    text += "\n}\n";
  }
  return text + "}  // namespace\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::runtime_error("usage: pytorch_program MARKDOWN OUT");
    std::ofstream out(argv[2], std::ios::binary);
    out << program_of(parse_markdown(read_file(argv[1])), argv[1]);
    if (!out.flush()) throw std::runtime_error(std::string("cannot write ") + argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pytorch_program: %s\n", error.what());
    return 1;
  }
}

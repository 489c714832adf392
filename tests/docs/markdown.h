#pragma once

#include <string>
#include <vector>

// The parts of a Markdown file that the tests of the documentation read.

namespace tandem::docs {

/// A fenced block. ```cpp core/error.h has the language "cpp" and the argument "core/error.h".
struct Block {
  int line = 0;  // line of the opening fence
  std::string language;
  std::string argument;
  std::string text;  // without the indentation of the fence; each line ends with '\n'
};

/// A row of a table with two columns. Cells are verbatim, without surrounding blanks.
struct Row {
  int line = 0;
  std::string left;
  std::string right;
};

struct Markdown {
  std::vector<Block> blocks;
  std::vector<Row> rows;  // without headings and the separator lines below them
};

Markdown parse_markdown(const std::string& text);

/// The code spans of a cell, i.e. the text between backticks; "\|" in a span becomes "|".
std::vector<std::string> code_spans(const std::string& cell);

/// The content of a file; throws std::runtime_error if the file cannot be read.
std::string read_file(const std::string& path);

}  // namespace tandem::docs

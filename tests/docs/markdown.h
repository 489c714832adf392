#pragma once

#include <string>
#include <vector>

// What the tests of the documentation see of a Markdown file.

namespace tandem::docs {

/// A fenced block. ```cpp core/error.h has the language "cpp" and the argument "core/error.h".
struct Block {
  int line = 0;  // of the opening fence
  std::string language;
  std::string argument;
  std::string text;  // without the indentation of the fence; each line ends with '\n'
};

/// A row of a table with two columns. Cells are as written, blanks around them removed.
struct Row {
  int line = 0;
  std::string left;
  std::string right;
};

struct Markdown {
  std::vector<Block> blocks;
  std::vector<Row> rows;  // headings and the lines below them left out
};

Markdown parse_markdown(const std::string& text);

/// The pieces of a cell between backticks; "\|" in them is "|".
std::vector<std::string> code_spans(const std::string& cell);

/// A file's content; throws std::runtime_error when it cannot be read.
std::string read_file(const std::string& path);

}  // namespace tandem::docs

#include "docs/markdown.h"

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace tandem::docs {

namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

// The cells of "| a | b |"; empty for a line that is not a table row.
std::vector<std::string> cells_of(const std::string& line) {
  const std::string row = trimmed(line);
  if (row.size() < 2 || row.front() != '|' || row.back() != '|') return {};
  std::vector<std::string> cells(1);
  for (std::size_t i = 1; i + 1 < row.size(); ++i) {
    if (row[i] == '|' && row[i - 1] != '\\') {
      cells.emplace_back();
    } else {
      cells.back() += row[i];
    }
  }
  for (std::string& cell : cells) {
    cell = trimmed(cell);
  }
  return cells;
}

}  // namespace

Markdown parse_markdown(const std::string& text) {
  Markdown result;
  std::istringstream lines(text);
  std::optional<Block> open;
  std::size_t indent = 0;
  bool heading_next = true;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string bare = trimmed(line);
    if (bare.starts_with("```")) {
      if (open) {
        result.blocks.push_back(*open);
        open.reset();
        continue;
      }
      indent = line.find('`');
      open = Block{.line = number, .language = {}, .argument = {}, .text = {}};
      std::istringstream words(bare.substr(3));
      words >> open->language >> open->argument;
      continue;
    }
    if (open) {
      open->text += (line.size() > indent ? line.substr(indent) : std::string()) + "\n";
      continue;
    }
    const std::vector<std::string> cells = cells_of(line);
    if (cells.empty()) {
      heading_next = true;
      continue;
    }
    const bool rule = cells.front().find_first_not_of("-:") == std::string::npos;
    if (!heading_next && !rule && cells.size() == 2) {
      result.rows.push_back({.line = number, .left = cells[0], .right = cells[1]});
    }
    heading_next = false;
  }
  if (open) {
    throw std::runtime_error("line " + std::to_string(open->line) + ": this block is never closed");
  }
  return result;
}

std::vector<std::string> code_spans(const std::string& cell) {
  std::vector<std::string> spans;
  for (auto begin = cell.find('`'); begin != std::string::npos; begin = cell.find('`', begin)) {
    const auto end = cell.find('`', begin + 1);
    if (end == std::string::npos) throw std::runtime_error("a backtick is never closed: " + cell);
    std::string span = cell.substr(begin + 1, end - begin - 1);
    for (auto at = span.find("\\|"); at != std::string::npos; at = span.find("\\|", at)) {
      span.erase(at, 1);
    }
    spans.push_back(std::move(span));
    begin = end + 1;
  }
  return spans;
}

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace tandem::docs

#include "layers/source_tree.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace tandem::layers {

namespace {

namespace fs = std::filesystem;

bool is_source(const fs::path& path) {
  static constexpr std::array<std::string_view, 4> kExtensions{".h", ".cpp", ".cu", ".cuh"};
  return std::ranges::find(kExtensions, path.extension().string()) != kExtensions.end();
}

std::string_view trim_left(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

// The path of an include line; empty for any other line.
Include parse_include(std::string_view line) {
  line = trim_left(line);
  if (!line.starts_with('#')) return {};
  line = trim_left(line.substr(1));
  if (!line.starts_with("include")) return {};
  line = trim_left(line.substr(std::string_view("include").size()));
  if (line.empty() || (line.front() != '<' && line.front() != '"')) return {};
  const bool quoted = line.front() == '"';
  const auto end = line.find(quoted ? '"' : '>', 1);
  return {0, std::string(line.substr(1, end == std::string_view::npos ? end : end - 1)), quoted};
}

SourceFile parse_source(const std::string& path, const std::string& text) {
  SourceFile file{path, 0, {}};
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    ++file.lines;
    if (Include include = parse_include(line); !include.path.empty()) {
      include.line = file.lines;
      file.includes.push_back(std::move(include));
    }
  }
  return file;
}

// The words of the first tandem_layer(...) in a CMakeLists.txt, without comments; empty if none exists.
std::vector<std::string> layer_arguments(const std::string& text) {
  std::string code;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    code += line.substr(0, line.find('#')) + '\n';
  }
  static constexpr std::string_view kCall = "tandem_layer(";
  const auto begin = code.find(kCall);
  if (begin == std::string::npos) return {};
  const auto end = code.find(')', begin);
  std::istringstream stream(code.substr(begin + kCall.size(), end - begin - kCall.size()));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  return words;
}

void parse_layer(const std::string& folder, const std::string& text, SourceTree& tree) {
  const std::vector<std::string> words = layer_arguments(text);
  if (words.empty()) return;
  Layer& layer = tree.layers[folder];
  std::set<std::string>* list = nullptr;
  std::string ending;
  for (const std::string& word : words) {
    if (word == "PUBLIC_HEADERS" || word == "FAMILIES") {
      list = &layer.public_headers;
      ending = word == "FAMILIES" ? ".h" : "";
    } else if (word == "BRIDGE_HEADERS") {
      list = &layer.bridge_headers;
      ending = "";
    } else if (word == "SOURCES" || word == "LINK" || word == "HEADER_ONLY") {
      list = nullptr;
    } else if (list != nullptr) {
      list->insert(folder + "/" + word + ending);
    }
  }
}

}  // namespace

std::string SourceFile::layer() const {
  const auto slash = path.find('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

bool SourceFile::is_header() const { return path.ends_with(".h") || path.ends_with(".cuh"); }

std::map<std::string, std::string> read_texts(const fs::path& root) {
  std::map<std::string, std::string> texts;
  for (fs::recursive_directory_iterator entry(root), end; entry != end; ++entry) {
    const std::string name = entry->path().filename().string();
    if (entry->is_directory() && (name.starts_with('.') || name.starts_with("build") || name == "runs")) {
      entry.disable_recursion_pending();
      continue;
    }
    if (!entry->is_regular_file() || (!is_source(entry->path()) && name != "CMakeLists.txt")) continue;
    std::ifstream stream(entry->path(), std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    if (!stream) throw std::runtime_error("cannot read " + entry->path().string());
    texts[entry->path().lexically_relative(root).generic_string()] = text.str();
  }
  return texts;
}

SourceTree parse_tree(const std::map<std::string, std::string>& texts) {
  SourceTree tree;
  for (const auto& [path, text] : texts) {
    if (is_source(path)) {
      tree.files.push_back(parse_source(path, text));
    } else if (std::ranges::count(path, '/') == 1) {
      parse_layer(path.substr(0, path.find('/')), text, tree);
    }
  }
  return tree;
}

}  // namespace tandem::layers

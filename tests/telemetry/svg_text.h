#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tandem {

/// For every `before`, the text between it and the next `after`.
inline std::vector<std::string> all(const std::string& text, const std::string& before, const std::string& after) {
  std::vector<std::string> found;
  for (std::size_t at = 0; (at = text.find(before, at)) != std::string::npos;) {
    at += before.size();
    found.push_back(text.substr(at, text.find(after, at) - at));
  }
  return found;
}

/// Whether tags are closed in order, and neither text nor attributes contain stray markup.
inline bool is_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = 0; (at = svg.find_first_of("<>&", at)) != std::string::npos;) {
    const std::string rest = svg.substr(at, 5);
    if (rest.starts_with("&amp;") || rest.starts_with("&lt;") || rest.starts_with("&gt;")) {
      ++at;
      continue;
    }
    const std::size_t end = svg.find_first_of("<>&", at + 1);
    if (svg[at] != '<' || end == std::string::npos || svg[end] != '>') {
      return false;
    }
    const std::string tag = svg.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      if (open.empty() || "/" + open.back() != tag) {
        return false;
      }
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end + 1;
  }
  return open.empty();
}

}  // namespace tandem

#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

// The project's own sources as the structure checks see them: include lines, lengths, and the header lists of the
// layers. Paths are relative to the project and use '/'.

namespace tandem::layers {

struct Include {
  int line = 0;
  std::string path;     // the text between the brackets or quotes
  bool quoted = false;  // "..." instead of <...>
};

struct SourceFile {
  std::string path;
  int lines = 0;
  std::vector<Include> includes;

  /// The top folder: "core" for core/cuda/device.cpp, empty for tandem.h.
  std::string layer() const;
  bool is_header() const;
};

/// The declarations in the CMakeLists.txt of one layer.
struct Layer {
  std::set<std::string> public_headers;
  std::set<std::string> bridge_headers;
};

struct SourceTree {
  std::vector<SourceFile> files;        // sorted by path
  std::map<std::string, Layer> layers;  // every folder with a tandem_layer(...)
};

/// The texts on disk by path: C++ and CUDA sources and the CMakeLists.txt files, without build folders.
std::map<std::string, std::string> read_texts(const std::filesystem::path& root);

SourceTree parse_tree(const std::map<std::string, std::string>& texts);

}  // namespace tandem::layers

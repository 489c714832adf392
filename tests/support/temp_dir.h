#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include <stdlib.h>

namespace tandem::test {

inline void write_text(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// A new folder, removed with all its content at the end of the scope.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "tandem-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  /// Writes a file in the folder and returns its path.
  std::string write(std::string_view name, std::string_view content) const {
    write_text(file(name), content);
    return file(name);
  }

 private:
  std::string path_;
};

/// The content of a file; empty if there is none. A process may end while its file under /proc is read: the stream's
/// operator catches what its buffer throws then, an iterator would not.
inline std::string read_text(const std::string& path) {
  const std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace tandem::test
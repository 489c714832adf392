#pragma once

#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/checkpoint/safetensors_header.h>
#include <tandem/checkpoint/stored_tensors.h>

// Safetensors files as strings.

namespace tandem::test {

/// A file with this JSON text and `data` zero bytes.
inline std::string file_with(std::string_view json, std::size_t data = 0) {
  const std::uint64_t length = json.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(json).append(data, '\0');
}

inline checkpoint::SafetensorsHeader::Read reader_of(std::string_view file) {
  return [file](std::uint64_t offset, std::span<char> bytes) {
    if (!bytes.empty()) {
      std::memcpy(bytes.data(), file.data() + offset, bytes.size());
    }
  };
}

inline checkpoint::SafetensorsHeader header_in(std::string_view file) { return {"m", file.size(), reader_of(file)}; }

inline StateDict load_from_memory(std::string_view file) { return checkpoint::from_bytes(file, "m"); }

}  // namespace tandem::test

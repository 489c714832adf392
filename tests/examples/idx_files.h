#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Small files in MNIST's format.

namespace example {

/// An IDX file of unsigned bytes.
inline std::string idx(const std::vector<std::uint32_t>& sizes, const std::string& data, char type = 0x08) {
  std::string bytes{0, 0, type, static_cast<char>(sizes.size())};
  for (const std::uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes.push_back(static_cast<char>(size >> shift & 0xff));
    }
  }
  return bytes + data;
}

/// Pictures of 3x3 pixels; the pixel whose number is the class is bright.
inline std::string images(std::uint32_t count) {
  std::string pixels;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::string picture(9, '\x10');
    picture[i % 3] = '\xf0';
    picture[8] = static_cast<char>(i);
    pixels += picture;
  }
  return idx({count, 3, 3}, pixels);
}

/// The classes of images().
inline std::string labels(std::uint32_t count) {
  std::string classes;
  for (std::uint32_t i = 0; i < count; ++i) {
    classes.push_back(static_cast<char>(i % 3));
  }
  return idx({count}, classes);
}

}  // namespace example

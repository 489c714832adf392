#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tandem/core/dtype.h>
#include <tandem/core/shape.h>

// Internal: the header of a NumPy file. NumPy documents the format in numpy/lib/format.py.

namespace tandem::inline v0::data {

/// The readable element types of NumPy files, by their codes.
enum class NpyElement : std::uint8_t { f2, f4, f8, i8, i4, u1, b1, i1, i2, u2, u4 };

struct NpyType {
  NpyElement element;
  std::string_view code;  // for example "f4" in '<f4'
  std::size_t bytes;
  DType stored;  // dtype of the resulting tensor
};

struct NpyHeader {
  const NpyType* type = nullptr;
  bool swapped = false;  // the byte order of the elements differs from this machine's
  bool fortran_order = false;
  Shape shape;
  std::size_t data_offset = 0;  // start of the elements; the file ends exactly after them
};

/// Reads and checks everything except the elements. `name` stands for the path in errors. Throws IoError.
NpyHeader read_npy_header(std::span<const std::uint8_t> file, const std::string& name);

/// The number of bytes in a file that begins with `head`. 0 if the header is refused, which it also is if `head` ends
/// inside it.
std::size_t npy_bytes(std::span<const std::uint8_t> head);

/// The bytes that a header takes at most, with what is before it.
inline constexpr std::size_t kMaxNpyHeader = 64 * 1024 + 12;

/// Makes the header of a version 1.0 file, padded so that the elements start at a multiple of 64. Throws DTypeError.
std::string npy_header(DType dtype, const Shape& shape);

}  // namespace tandem::inline v0::data

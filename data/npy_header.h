#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tandem/core/dtype.h>
#include <tandem/core/shape.h>

// Internal: what stands before the elements of a NumPy file. The format is in NumPy's numpy/lib/format.py.

namespace tandem::inline v0::data {

/// The element types of NumPy files that can be read, by their codes.
enum class NpyElement : std::uint8_t { f2, f4, f8, i8, i4, u1, b1, i1, i2, u2, u4 };

struct NpyType {
  NpyElement element;
  std::string_view code;  // as in '<f4'
  std::size_t bytes;
  DType stored;  // what it becomes
};

struct NpyHeader {
  const NpyType* type = nullptr;
  bool swapped = false;  // the elements are in the other byte order than this machine's
  bool fortran_order = false;
  Shape shape;
  std::size_t data_offset = 0;  // where the elements start; the file ends exactly behind them
};

/// Reads and checks everything but the elements; `name` stands for the path in errors. Throws IoError.
NpyHeader read_npy_header(std::span<const std::uint8_t> file, const std::string& name);

/// The header of a file of version 1.0, padded so that the elements start at a multiple of 64. Throws DTypeError.
std::string npy_header(DType dtype, const Shape& shape);

}  // namespace tandem::inline v0::data

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::data {

/// The array of an IDX file, the format of MNIST: dense, row-major, in the byte order of this machine.
struct IdxArray {
  DType dtype = DType::u8;          // u8, i32, f32 or f64; i8 and i16 files are widened to i32
  std::vector<std::int64_t> sizes;  // 1 to 8 dimensions, all positive; the first one counts the samples
  std::vector<std::uint8_t> bytes;  // number of bytes: product of the sizes, times item_size(dtype)
};

/// Limits of read_idx().
struct IdxOptions {
  std::int64_t max_bytes = std::int64_t{4} << 30;  // largest accepted file, after unpacking
};

/// Reads an IDX file, plain or gzip-compressed (recognised by content, not by name). Memory: the size of the file, or
/// four times that for i8.
///
/// Throws IoError with the file, the byte offset (in the unpacked data), the expected and the actual content, for: a
/// missing, empty or too large file; a file in another format (with a guess of the format); an unknown element type;
/// more than 8 dimensions; a size of zero; fewer or more bytes than the sizes require. Sizes are checked against the
/// length of the file before they are used.
TANDEM_API IdxArray read_idx(const std::string& path, const IdxOptions& options = {});

/// read_idx() for an unpacked file in memory. `name` stands for the path in errors.
TANDEM_API IdxArray parse_idx(std::vector<std::uint8_t> file, const std::string& name);

/// Converts an array, keeping its shape and element type.
TANDEM_API Tensor to_tensor(const IdxArray& array);

}  // namespace tandem::inline v0::data

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/core/dtype.h>
#include <tandem/core/export.h>

namespace tandem::inline v0::data {

/// The array of an IDX file, the format of MNIST. Dense, row-major, in the byte order of this machine.
struct IdxArray {
  DType dtype = DType::u8;          // u8, i32, f32 or f64; i8 and i16 files are widened to i32
  std::vector<std::int64_t> sizes;  // 1 to 8 dimensions, all positive; the first counts the samples
  std::vector<std::uint8_t> bytes;  // product of the sizes, times item_size(dtype)
};

/// Where read_idx() gives up.
struct IdxOptions {
  std::int64_t max_bytes = std::int64_t{4} << 30;  // largest file accepted, after unpacking
};

/// Reads an IDX file, plain or gzip-compressed (told by content, not by name). Memory: the file once, four times that
/// for i8.
///
/// Throws IoError that names the file and the byte offset (in the unpacked data), what was expected and what was found:
/// missing, empty, too large, not IDX (with a guess of what it is), unknown element type, more than 8 dimensions, a
/// size of zero, fewer or more bytes than the sizes ask for. Sizes are believed only after they were checked against
/// the length of the file.
TANDEM_API IdxArray read_idx(const std::string& path, const IdxOptions& options = {});

/// The same for a file already in memory, unpacked. `name` stands for the path in errors.
TANDEM_API IdxArray parse_idx(std::vector<std::uint8_t> file, const std::string& name);

}  // namespace tandem::inline v0::data

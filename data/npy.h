#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <tandem/core/export.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::data {

/// Limits of load_npy().
struct NpyOptions {
  std::int64_t max_bytes = std::int64_t{4} << 30;  // largest accepted file
};

/// Reads the array of a NumPy file (np.save): format versions 1 to 3, either byte order, C or Fortran order. The result
/// is contiguous, on the CPU, and has the array's shape and element type: f2, f4, f8, i8, i4, u1, b1 become f16, f32,
/// f64, i64, i32, u8, bool; i1, i2 and u2 are widened to i32, u4 to i64. Nothing in the file is ever executed.
///
/// Memory: the file plus the result.
///
/// Throws IoError with the file, the byte offset, the expected and the actual content, for: a missing, empty or too
/// large file; gzip data; a file in another format (with a guess of the format); a header that is damaged or longer
/// than 64 KiB; an unsupported element type, by name (objects, records, text, dates, complex, unsigned 64-bit
/// integers); more than 8 dimensions; fewer or more bytes than the shape requires. The shape is checked against the
/// length of the file before it is used.
TANDEM_API Tensor load_npy(const std::string& path, const NpyOptions& options = {});

/// load_npy() for a file in memory. `name` stands for the path in errors.
TANDEM_API Tensor parse_npy(std::span<const std::uint8_t> file, const std::string& name);

/// Writes a tensor as np.save does (version 1.0, C order, this machine's byte order; data at a multiple of 64 bytes).
/// The file is replaced as a whole: another program, or a reader after a crash, sees either the old file or the new
/// one. Throws IoError with the path and the system's reason, and then leaves an existing file untouched. Throws
/// DTypeError for bf16, which NumPy lacks.
TANDEM_API void save_npy(const std::string& path, const Tensor& tensor);

}  // namespace tandem::inline v0::data

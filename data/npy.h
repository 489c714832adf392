#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <tandem/core/export.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::data {

/// Limits of the reader.
struct NpyOptions {
  std::int64_t max_bytes = std::int64_t{4} << 30;  // largest file accepted
};

/// Reads the array of a NumPy file (np.save), format versions 1 to 3, either byte order, in C or Fortran order. The
/// result is contiguous, on the CPU, and has the array's own shape and element type: f2, f4, f8, i8, i4, u1, b1 become
/// f16, f32, f64, i64, i32, u8, bool; i1, i2 and u2 are widened to i32, u4 to i64. Nothing in the file is ever
/// executed.
///
/// Memory: the file and the result.
///
/// Throws IoError that names the file and the byte offset, what was expected and what was found: missing, empty, too
/// large, gzip data, not a NumPy file (with a guess of what it is), a header that is damaged or longer than 64 KiB,
/// another element type (objects, records, text, dates, complex, 64-bit unsigned ones, by name), more than 8
/// dimensions, fewer or more bytes than the shape asks for. The shape is believed only after it was checked against the
/// length of the file.
TANDEM_API Tensor load_npy(const std::string& path, const NpyOptions& options = {});

/// The same for a file already in memory. `name` stands for the path in errors.
TANDEM_API Tensor parse_npy(std::span<const std::uint8_t> file, const std::string& name);

/// Writes a tensor as np.save does (version 1.0, C order, this machine's byte order; data at a multiple of 64 bytes),
/// as a whole or not at all: other programs, and whoever looks after a crash, see the old file or the new one. Throws
/// IoError with the path and the system's reason; the old file, if there was one, is then untouched. Throws DTypeError
/// for bf16, which NumPy does not have.
TANDEM_API void save_npy(const std::string& path, const Tensor& tensor);

}  // namespace tandem::inline v0::data

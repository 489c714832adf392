#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/core/export.h>

// Internal: how every reader gets the bytes of a file.

namespace tandem::inline v0::data {

enum class Gzip : std::uint8_t { unpack, keep };

/// Whole content of `path`, a file or a pipe. Gzip data is recognised by its first two bytes, whatever the name says,
/// and unpacked unless it is to be kept (several members in a row count as one file, as in gzip). Memory follows what
/// really comes, not what a header promises.
///
/// Throws IoError with the path, and for gzip data the byte offset in the compressed file: cannot be opened or read,
/// is a directory, is empty, has more than `max_bytes` (after unpacking), ends early, is corrupt, or goes on after the
/// gzip data.
TANDEM_API std::vector<std::uint8_t> read_file(const std::string& path, std::int64_t max_bytes,
                                               Gzip gzip = Gzip::unpack);

}  // namespace tandem::inline v0::data

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/export.h>

// Internal: all readers get the bytes of a file through read_file().

namespace tandem::inline v0::data {

enum class Gzip : std::uint8_t { unpack, keep };

/// Sees the bytes of a file (unpacked) as they are read: the next ones, and the number of all so far. Returns false if
/// the content is certain to be refused; the rest is not read then.
using Inspect = std::function<bool(std::span<const std::uint8_t> bytes, std::size_t total)>;

/// Reads the whole content of `path`, a file or a pipe. Gzip data is recognised by its first two bytes, regardless of
/// the name, and is unpacked unless `gzip` is Gzip::keep (several gzip members in a row count as one file, as in gzip
/// itself). Memory grows with the bytes that are actually read, to at most twice their number, not with a size promised
/// by a header.
///
/// Throws IoError with the path, and for gzip data the byte offset in the compressed file, if the file cannot be opened
/// or read, is a directory, is empty, has more than `max_bytes` (after unpacking), ends early, is corrupt, or has
/// trailing bytes after the gzip data.
TANDEM_API std::vector<std::uint8_t> read_file(const std::string& path, std::int64_t max_bytes,
                                               const Inspect& inspect = {}, Gzip gzip = Gzip::unpack);

}  // namespace tandem::inline v0::data

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tandem/checkpoint/safetensors_header.h>
#include <tandem/core/export.h>
#include <tandem/core/file_ops.h>
#include <tandem/tensor/state_dict.h>

// Internal: the elements of a safetensors file, and the hashes by which a damaged file is known. A hash covers a
// tensor's name, type, shape and bytes; the seal covers the hashes and all other metadata, so it covers the file.

namespace tandem::inline v0::checkpoint {

/// Metadata of files that tandem wrote: the hashes of all tensors in the order of the data, and the seal.
inline constexpr std::string_view kHashes = "tandem.xxh3";
inline constexpr std::string_view kSeal = "tandem.seal";
/// The length of a hash as text.
inline constexpr std::size_t kHashDigits = 32;

/// XXH3-128 of a stored tensor, as hexadecimal digits.
std::string hash_of(std::string_view name, const StoredType& type, const Shape& shape, std::span<const char> bytes);
/// XXH3-128 of all metadata but the seal.
std::string seal_of(const Metadata& metadata);

/// Whether the file has hashes. Throws IoError if it should have them and the seal does not match.
TANDEM_API bool has_hashes(const SafetensorsHeader& header, const std::string& path);
/// The hash of the tensor at `place`, which the file must have.
std::string stored_hash(const SafetensorsHeader& header, std::size_t place);
/// Reads the tensors at `places` on the pool's threads, and compares them with their hashes if `verify` and the file
/// has some. Throws IoError, which names the tensor, for a hash that does not match and for types that tandem lacks.
TANDEM_API StateDict read_tensors(const SafetensorsHeader& header, std::span<const std::size_t> places,
                                  const SafetensorsHeader::Read& read, const std::string& path, bool verify);
/// Writes a file with hashes as save() does, with `more` metadata.
TANDEM_API void write_tensors(const StateDict& state, const std::string& path, const Metadata& more,
                              core::FileOps& ops = core::FileOps::system());

}  // namespace tandem::inline v0::checkpoint

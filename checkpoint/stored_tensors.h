#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/checkpoint/safetensors_header.h>
#include <tandem/core/export.h>
#include <tandem/core/file_ops.h>
#include <tandem/tensor/state_dict.h>

// Internal: the elements of a safetensors file, and the hashes by which a damaged file is known. A hash covers a
// tensor's name, type, shape and bytes; the seal covers the hashes and all other metadata, so it covers the file.

namespace tandem::inline v0::checkpoint {

/// Metadata of files that tandem wrote: the hashes of all tensors in the order of their names, and the seal. Another
/// program may put the tensors and the metadata in another order.
inline constexpr std::string_view kHashes = "tandem.xxh3";
inline constexpr std::string_view kSeal = "tandem.seal";
/// Begins the names of metadata that users do not see.
inline constexpr std::string_view kOwnMetadata = "tandem.";
/// The length of a hash as text.
inline constexpr std::size_t kHashDigits = 32;

/// XXH3-128 of a stored tensor, as hexadecimal digits.
std::string hash_of(std::string_view name, const StoredType& type, const Shape& shape, std::span<const char> bytes);

/// XXH3-64 of a tensor's elements.
std::uint64_t hash_of(const Tensor& tensor);

/// Whether the file has hashes.
bool has_hashes(const SafetensorsHeader& header);
/// Throws IoError if the file has hashes and the metadata is not what was saved with them.
TANDEM_API void check_seal(const SafetensorsHeader& header, const std::string& path);
/// The hash of the tensor at `place`, or an empty text.
std::string stored_hash(const SafetensorsHeader& header, std::size_t place);

/// Reads the tensors at `places` on the pool's threads. With `verify` the file must have hashes, and they are compared.
/// Throws IoError, which names the tensor, for a hash that does not match and for types that tandem lacks.
TANDEM_API StateDict read_tensors(const SafetensorsHeader& header, std::span<const std::size_t> places,
                                  const SafetensorsHeader::Read& read, const std::string& path, bool verify);
/// Compares all tensors with their hashes, in little memory. Throws IoError, which names the tensor.
TANDEM_API void verify_tensors(const SafetensorsHeader& header, const SafetensorsHeader::Read& read,
                               const std::string& path);
/// The content of a file with hashes.
struct EncodedFile {
  std::string header;
  std::vector<Tensor> tensors;  // dense, on the CPU, in the order of the file

  /// The whole content, in pieces.
  std::vector<std::string_view> parts() const;
};
/// The file of a state, with `more` metadata. Throws the ConfigErrors of save().
EncodedFile encode(const StateDict& state, const Metadata& more);
/// The content of such a file as one text, and the way back. from_bytes() throws the errors of load(), about `path`.
std::string to_bytes(const StateDict& state);
TANDEM_API StateDict from_bytes(std::string_view bytes, const std::string& path);
/// Writes a file with hashes as save() does, with `more` metadata.
TANDEM_API void write_tensors(const StateDict& state, const std::string& path, const Metadata& more,
                              core::FileOps& ops = core::FileOps::system());

}  // namespace tandem::inline v0::checkpoint

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/checkpoint/json_scanner.h>
#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/core/shape.h>

// Internal: the header of a safetensors file (https://github.com/huggingface/safetensors, format of 2022): eight bytes
// with its length, then JSON that gives each tensor a type, a shape and its place in the data that follows.

namespace tandem::inline v0::checkpoint {

/// How a file stores the elements of a tensor, and the dtype as which tandem reads them.
struct StoredType {
  std::string_view name;       // in the header: "BF16"
  int bits;                    // of one element
  std::optional<DType> dtype;  // none: tandem has no type for these values
};
/// The type that a header calls `name`, or null.
const StoredType* stored_type(std::string_view name) noexcept;
/// The type as which tandem writes a dtype.
const StoredType& stored_type(DType dtype) noexcept;

/// Part of a text of any content as errors show it: on one line.
std::string shown_name(std::string_view text);

/// "__metadata__": texts by name.
using Metadata = std::vector<std::pair<std::string, std::string>>;
/// The text of that name, or null.
const std::string* value_of(const Metadata& metadata, std::string_view name);
/// The text of that name, or an empty one.
std::string text_of(const Metadata& metadata, std::string_view name);

/// The tensors of a file in the order of their data. A header of n bytes takes at most 2 * n bytes of memory.
class TANDEM_API SafetensorsHeader {
 public:
  /// One tensor.
  struct Entry {
    std::string name;
    const StoredType* type = nullptr;
    std::uint64_t begin = 0;      // first byte, from the start of the data
    std::uint64_t end = 0;        // the byte after the last
    std::uint32_t first_dim = 0;  // place of its encoded shape
    std::uint8_t dims = 0;
  };
  /// Reads `bytes` from `offset` on. Throws IoError if the file does not have them.
  using Read = JsonScanner::Read;

  SafetensorsHeader() = default;
  /// Reads and checks the header of a file of `file_bytes`. `path` stands in errors. Throws IoError with the byte
  /// offset or the tensor's name, what was expected and what was found, unless every tensor has a known type and a
  /// shape whose product of sizes matches its bytes, and the tensors cover the data without holes and overlaps.
  SafetensorsHeader(const std::string& path, std::uint64_t file_bytes, const Read& read);

  /// The number of tensors.
  std::size_t size() const noexcept { return order_.size(); }
  /// The tensor at this place in the order of the data.
  const Entry& entry(std::size_t place) const { return entries_[order_[place]]; }
  /// The shape of a tensor of this header.
  Shape shape(const Entry& entry) const;
  /// The place of the tensor with this name, if there is one.
  std::optional<std::size_t> find(std::string_view name) const;
  /// How many tensors have a name before that of the tensor at `place`.
  std::size_t rank_of_name(std::size_t place) const;
  const Metadata& metadata() const noexcept { return metadata_; }
  /// The offset in the file at which the data begins.
  std::uint64_t data_offset() const noexcept { return data_offset_; }

 private:
  void read_metadata(JsonScanner& json);
  void read_entry(JsonScanner& json, std::string name);
  void add_dim(std::int64_t size);

  std::deque<Entry> entries_;  // in the order of the header; a deque does not hold two copies while it grows
  std::deque<std::uint8_t> dims_;
  std::vector<std::uint32_t> order_;    // by their place in the data
  std::vector<std::uint32_t> by_name_;  // places in order_, by name
  Metadata metadata_;
  std::uint64_t data_offset_ = 0;
};

/// A tensor to be written.
struct StoredTensor {
  std::string_view name;
  DType dtype = DType::f32;
  Shape shape;
};
/// Throws ConfigError for names that a file cannot hold: text that is not UTF-8, "__metadata__", or one name twice.
void check_names(const std::vector<StoredTensor>& tensors);
/// The length and the JSON, padded to a multiple of eight bytes, of a file with these tensors one after the other.
std::string safetensors_header(const std::vector<StoredTensor>& tensors, const Metadata& metadata);

}  // namespace tandem::inline v0::checkpoint

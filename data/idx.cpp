#include <tandem/data/idx.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/ranges.h>

#include <tandem/core/check.h>
#include <tandem/core/shape.h>
#include <tandem/data/byte_source.h>
#include <tandem/data/diagnostics.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

namespace {

constexpr std::size_t kMagicBytes = 4;
constexpr std::size_t kLongestHeader = kMagicBytes + 255 * sizeof(std::uint32_t);

struct ElementType {
  std::string_view name;
  std::size_t bytes;
  std::uint8_t code;
  DType stored;
};

constexpr ElementType kElementTypes[] = {
    {"u8", 1, 0x08, DType::u8},   {"i8", 1, 0x09, DType::i32},  {"i16", 2, 0x0B, DType::i32},
    {"i32", 4, 0x0C, DType::i32}, {"f32", 4, 0x0D, DType::f32}, {"f64", 8, 0x0E, DType::f64},
};

// Converts a big-endian value to a host value; compilers turn this into a byte swap.
template <class Bits>
Bits big_endian(const std::uint8_t* bytes) {
  Bits value = 0;
  for (std::size_t i = 0; i < sizeof(Bits); ++i) {
    value = static_cast<Bits>(value << 8U | bytes[i]);
  }
  return value;
}

template <class Bits>
void to_host_order(std::vector<std::uint8_t>& bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(Bits)) {
    const Bits value = big_endian<Bits>(&bytes[i]);
    std::memcpy(&bytes[i], &value, sizeof(Bits));
  }
}

// Converts signed Narrow elements in file order to i32 in host order.
template <class Narrow>
std::vector<std::uint8_t> widen(const std::vector<std::uint8_t>& bytes) {
  const std::size_t count = bytes.size() / sizeof(Narrow);
  std::vector<std::uint8_t> wide(count * sizeof(std::int32_t));
  for (std::size_t i = 0; i < count; ++i) {
    const auto narrow = static_cast<Narrow>(big_endian<std::make_unsigned_t<Narrow>>(&bytes[i * sizeof(Narrow)]));
    const std::int32_t value{narrow};
    std::memcpy(&wide[i * sizeof value], &value, sizeof value);
  }
  return wide;
}

[[noreturn]] void fail_not_idx(const std::vector<std::uint8_t>& file, const std::string& name) {
  constexpr std::size_t kHeadBytes = 64;
  const std::string_view head(reinterpret_cast<const char*>(file.data()), std::min(file.size(), kHeadBytes));
  std::string_view guess = recognise(head);
  if (guess.empty() && looks_like_text(head)) {
    guess = "a text file, perhaps CSV";
  }
  const auto first = std::span(file).first(std::min(file.size(), kMagicBytes));
  fail<IoError>(
      "{}: not an IDX file: its first bytes are [{:02x}], expected [00 00], a type code and the number of "
      "dimensions{}{} [TDM-E508]",
      name, fmt::join(first, " "), guess.empty() ? "" : "; this looks like ", guess);
}

const ElementType& element_type(std::uint8_t code, const std::string& name) {
  for (const ElementType& type : kElementTypes) {
    if (type.code == code) {
      return type;
    }
  }
  fail<IoError>(
      "{}: byte 2: unknown element type 0x{:02x}; expected 08 (u8), 09 (i8), 0b (i16), 0c (i32), 0d (f32) "
      "or 0e (f64)",
      name, code);
}

std::vector<std::int64_t> read_sizes(const std::vector<std::uint8_t>& file, const std::string& name) {
  const std::size_t dims = file[3];
  check<IoError>(dims >= 1 && dims <= kMaxDims, "{}: byte 3: {} dimensions, expected 1 to {}", name, dims, kMaxDims);
  const std::size_t header_bytes = kMagicBytes + dims * sizeof(std::uint32_t);
  check<IoError>(file.size() >= header_bytes,
                 "{}: byte {}: the file ends inside its header; {} dimensions need {} "
                 "header bytes [TDM-E510]",
                 name, file.size(), dims, header_bytes);
  std::vector<std::int64_t> sizes;
  for (std::size_t offset = kMagicBytes; offset < header_bytes; offset += sizeof(std::uint32_t)) {
    sizes.push_back(big_endian<std::uint32_t>(&file[offset]));
    check<IoError>(sizes.back() > 0, "{}: byte {}: size 0 in dimension {}: the file holds no data", name, offset,
                   sizes.size() - 1);
  }
  return sizes;
}

void check_length(const std::vector<std::int64_t>& sizes, const ElementType& type, std::size_t header_bytes,
                  std::size_t data_bytes, const std::string& name) {
  std::size_t expected = type.bytes;
  for (const std::int64_t size : sizes) {
    check<IoError>(!__builtin_mul_overflow(expected, static_cast<std::size_t>(size), &expected),
                   "{}: byte {}: sizes [{}] are more than can be counted; the header is corrupt", name, kMagicBytes,
                   fmt::join(sizes, ", "));
  }
  check<IoError>(
      data_bytes >= expected,
      "{}: byte {}: the file ends early: sizes [{}] of {} need {} bytes after the header, found {} [TDM-E510]", name,
      header_bytes + data_bytes, fmt::join(sizes, ", "), type.name, expected, data_bytes);
  check<IoError>(data_bytes == expected,
                 "{}: byte {}: too many bytes: sizes [{}] of {} need {} bytes after the header, and more follow", name,
                 header_bytes + expected, fmt::join(sizes, ", "), type.name, expected);
}

// The number of bytes that a file with this beginning should have; 0 if parse_idx() refuses any such file.
std::size_t announced_bytes(std::span<const std::uint8_t> file) {
  const std::size_t dims = file.size() > 3 ? file[3] : 0;
  const std::size_t header_bytes = kMagicBytes + dims * sizeof(std::uint32_t);
  const auto* const type =
      std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                   [&](const ElementType& known) { return file.size() > 2 && known.code == file[2]; });
  if (dims == 0 || file.size() < header_bytes || type == std::end(kElementTypes) || file[0] != 0 || file[1] != 0) {
    return 0;
  }
  std::size_t bytes = type->bytes;
  for (std::size_t offset = kMagicBytes; offset < header_bytes; offset += sizeof(std::uint32_t)) {
    if (__builtin_mul_overflow(bytes, std::size_t{big_endian<std::uint32_t>(&file[offset])}, &bytes)) {
      return 0;
    }
  }
  return __builtin_add_overflow(bytes, header_bytes, &bytes) ? 0 : bytes;
}

}  // namespace

IdxArray parse_idx(std::vector<std::uint8_t> file, const std::string& name) {
  if (file.size() < kMagicBytes || file[0] != 0 || file[1] != 0) {
    fail_not_idx(file, name);
  }
  const ElementType& type = element_type(file[2], name);
  IdxArray array{.dtype = type.stored, .sizes = read_sizes(file, name), .bytes = {}};
  const std::size_t header_bytes = kMagicBytes + array.sizes.size() * sizeof(std::uint32_t);
  check_length(array.sizes, type, header_bytes, file.size() - header_bytes, name);

  file.erase(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(header_bytes));
  switch (type.code) {
    case 0x09: array.bytes = widen<std::int8_t>(file); return array;
    case 0x0B: array.bytes = widen<std::int16_t>(file); return array;
    case 0x0C:
    case 0x0D: to_host_order<std::uint32_t>(file); break;
    case 0x0E: to_host_order<std::uint64_t>(file); break;
    default: break;
  }
  array.bytes = std::move(file);
  return array;
}

IdxArray read_idx(const std::string& path, const IdxOptions& options) {
  std::vector<std::uint8_t> head;
  std::size_t most = kLongestHeader;  // bytes, as the header announces
  const auto fits = [&](std::span<const std::uint8_t> fresh, std::size_t total) {
    if (head.size() < kLongestHeader) {
      const auto more = fresh.first(std::min(fresh.size(), kLongestHeader - head.size()));
      head.insert(head.end(), more.begin(), more.end());
      most = head.size() < kLongestHeader ? kLongestHeader : announced_bytes(head);
    }
    return total <= most;
  };
  return parse_idx(read_file(path, options.max_bytes, fits), path);
}

Tensor to_tensor(const IdxArray& array) {
  return detail::from_memory("to_tensor", array.bytes.data(), array.bytes.size() / item_size(array.dtype), array.dtype,
                             Shape(array.sizes), {});
}

}  // namespace tandem::inline v0::data

#include <tandem/data/npy.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/data/byte_source.h>
#include <tandem/data/npy_header.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

namespace {

// In the file, a bool may be any byte; in memory it is 0 or 1.
template <class Read>
using FileType = std::conditional_t<std::is_same_v<Read, bool>, std::uint8_t, Read>;

template <class Read>
FileType<Read> read_element(const std::uint8_t* bytes, bool swapped) {
  std::array<std::uint8_t, sizeof(Read)> element;
  std::memcpy(element.data(), bytes, sizeof(Read));
  if (swapped) {
    std::reverse(element.begin(), element.end());
  }
  return std::bit_cast<FileType<Read>>(element);
}

/// Calls body(source) for each element of `shape` in row-major order; `source` is its position in column-major order.
template <class Body>
void in_fortran_order(const Shape& shape, Body&& body) {
  const std::int64_t count = shape.numel();
  Shape strides = shape;
  for (std::int64_t d = 0, stride = 1; d < shape.ndim(); ++d) {
    strides[static_cast<int>(d)] = stride;
    stride *= shape[static_cast<int>(d)];
  }
  Shape index = Shape::filled(shape.ndim(), 0);
  std::int64_t source = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    body(source);
    for (int d = shape.ndim() - 1; d >= 0; --d) {
      source += strides[d];
      if (++index[d] < shape[d]) {
        break;
      }
      source -= strides[d] * shape[d];
      index[d] = 0;
    }
  }
}

template <class Read, class Stored = Read>
void read_elements(const NpyHeader& header, const std::uint8_t* bytes, Tensor& result) {
  Stored* out = result.mutable_data<Stored>();
  const auto put = [&](std::int64_t source) {
    *out++ = static_cast<Stored>(
        read_element<Read>(bytes + static_cast<std::size_t>(source) * sizeof(Read), header.swapped));
  };
  if (header.fortran_order) {
    in_fortran_order(header.shape, put);
    return;
  }
  const std::int64_t count = header.shape.numel();
  if constexpr (std::is_same_v<Read, Stored> && !std::is_same_v<Read, bool>) {
    if (!header.swapped && count > 0) {
      std::memcpy(out, bytes, static_cast<std::size_t>(count) * sizeof(Read));
      return;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    put(i);
  }
}

}  // namespace

Tensor parse_npy(std::span<const std::uint8_t> file, const std::string& name) {
  const NpyHeader header = read_npy_header(file, name);
  Tensor result = empty(header.shape, {.dtype = header.type->stored, .device = "cpu"});
  const std::uint8_t* bytes = file.data() + header.data_offset;
  switch (header.type->element) {
    case NpyElement::f2: read_elements<Float16>(header, bytes, result); break;
    case NpyElement::f4: read_elements<float>(header, bytes, result); break;
    case NpyElement::f8: read_elements<double>(header, bytes, result); break;
    case NpyElement::i8: read_elements<std::int64_t>(header, bytes, result); break;
    case NpyElement::i4: read_elements<std::int32_t>(header, bytes, result); break;
    case NpyElement::u1: read_elements<std::uint8_t>(header, bytes, result); break;
    case NpyElement::b1: read_elements<bool>(header, bytes, result); break;
    case NpyElement::i1: read_elements<std::int8_t, std::int32_t>(header, bytes, result); break;
    case NpyElement::i2: read_elements<std::int16_t, std::int32_t>(header, bytes, result); break;
    case NpyElement::u2: read_elements<std::uint16_t, std::int32_t>(header, bytes, result); break;
    case NpyElement::u4: read_elements<std::uint32_t, std::int64_t>(header, bytes, result); break;
  }
  return result;
}

Tensor load_npy(const std::string& path, const NpyOptions& options) {
  std::vector<std::uint8_t> head;
  std::size_t whole = 0;  // as the header says, once it is there
  const auto goes_on = [&](std::span<const std::uint8_t> fresh, std::size_t total) {
    if (whole == 0) {
      const std::span<const std::uint8_t> next = fresh.first(std::min(fresh.size(), kMaxNpyHeader - head.size()));
      head.insert(head.end(), next.begin(), next.end());
      whole = npy_bytes(head);
    }
    return whole > 0 ? total <= whole : head.size() < kMaxNpyHeader && head.front() == 0x93;
  };
  return parse_npy(read_file(path, options.max_bytes, goes_on, Gzip::keep), path);
}

void save_npy(const std::string& path, const Tensor& tensor) {
  check<ConfigError>(tensor.defined(), "save_npy: '{}': the tensor is undefined", path);
  const Tensor dense = tensor.detach().to("cpu").contiguous();
  const std::string header = npy_header(dense.dtype(), dense.shape());
  const std::size_t bytes = static_cast<std::size_t>(dense.numel()) * item_size(dense.dtype());
  core::replace_file(path, {header, {static_cast<const char*>(dense.raw().data()), bytes}});
}

}  // namespace tandem::inline v0::data

#include <tandem/checkpoint/safetensors_header.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/checkpoint/json_scanner.h>
#include <tandem/core/check.h>

namespace tandem::inline v0::checkpoint {

namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the reference's limit
constexpr std::size_t kMaxMetadata = 4096;         // pairs
constexpr std::string_view kMetadata = "__metadata__";

constexpr std::array<StoredType, 22> kTypes{{
    {"BOOL", 8, DType::boolean},      {"U8", 8, DType::u8},         {"I8", 8, DType::i32},
    {"F8_E5M2", 8, DType::f16},       {"F8_E4M3", 8, DType::f16},   {"I16", 16, DType::i32},
    {"U16", 16, DType::i32},          {"F16", 16, DType::f16},      {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32},          {"U32", 32, DType::i64},      {"F32", 32, DType::f32},
    {"F64", 64, DType::f64},          {"I64", 64, DType::i64},      {"U64", 64, DType::i64},
    {"C64", 64, std::nullopt},        {"F8_E8M0", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},     {"F4", 4, std::nullopt},      {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
}};

// Formats that are often taken for this one.
std::string other_format(std::span<const char> start) {
  const std::string_view text(start.data(), start.size());
  constexpr std::string_view kToSafetensors =
      "Reading one runs code that it contains, so tandem does not. Convert it in Python: import torch; from "
      "safetensors.torch import save_file; save_file(torch.load('FILE.pt', weights_only=True), 'FILE.safetensors')";
  if (text.starts_with("PK\x03\x04")) {
    return fmt::format("this is a zip archive, as torch.save writes it (PyTorch's .pt). {}", kToSafetensors);
  }
  if (text.size() > 1 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5) {
    return fmt::format("this is a pickle, as old versions of torch.save write it. {}", kToSafetensors);
  }
  if (text.starts_with("{\"") || text.starts_with("{\n") || text.starts_with("{ ")) {
    return "this is JSON text. The index of a model in several files is such a text: load the files that it names";
  }
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kOthers{{
      {"version https://git-lfs", "this is Git LFS's pointer to the file, not the file: run git lfs pull"},
      {"\x93NUMPY", "this is a NumPy array: read it with data::load_npy"},
      {"\x89HDF", "this is an HDF5 file, expected safetensors"},
      {"GGUF", "this is a GGUF file, expected safetensors"},
      {"\x1f\x8b", "this is gzip data: unpack it first (gunzip)"},
  }};
  for (const auto& [magic, words] : kOthers) {
    if (text.starts_with(magic)) {
      return std::string(words);
    }
  }
  return {};
}

}  // namespace

std::string shown_name(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::size_t end = std::min(text.size(), kShown);
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) {
    --end;  // not within a character
  }
  std::string shown(text.substr(0, end));
  std::replace_if(shown.begin(), shown.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '.');
  return end < text.size() ? shown + "..." : shown;
}

const StoredType* stored_type(std::string_view name) noexcept {
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(), [&](const StoredType& t) { return t.name == name; });
  return found == kTypes.end() ? nullptr : found;
}

const StoredType& stored_type(DType dtype) noexcept {
  const auto is_written = [&](const StoredType& type) {
    return type.dtype == dtype && static_cast<std::size_t>(type.bits) == 8 * item_size(dtype);
  };
  return *std::find_if(kTypes.begin(), kTypes.end(), is_written);
}

void SafetensorsHeader::read_metadata(JsonScanner& json) {
  json.object("an object of texts", [&](const std::string& key) {
    if (metadata_.size() == kMaxMetadata) {
      json.fail_here(fmt::format("\"__metadata__\" has more than {} texts", kMaxMetadata));
    }
    metadata_.emplace_back(key, json.text("a text of \"__metadata__\""));
  });
}

void SafetensorsHeader::read_entry(JsonScanner& json, std::string name) {
  Entry& entry = entries_.emplace_back();
  entry.name = std::move(name);
  entry.first_dim = static_cast<std::uint32_t>(dims_.size());
  bool has_shape = false;
  int offsets = 0;
  json.object("an object with dtype, shape and data_offsets", [&](const std::string& field) {
    if (field == "dtype" && entry.type == nullptr) {
      const std::string type = json.text("a dtype in quotes");
      entry.type = stored_type(type);
      if (entry.type == nullptr) {
        json.fail_here(fmt::format("tensor '{}' has the unknown dtype '{}'", shown_name(entry.name), shown_name(type)));
      }
    } else if (field == "shape" && !has_shape) {
      has_shape = true;
      json.array("an array of sizes", [&] {
        if (entry.dims == kMaxDims) {
          json.fail_here(fmt::format("tensor '{}' has more than {} dimensions", shown_name(entry.name), kMaxDims));
        }
        ++entry.dims;
        add_dim(json.number());
      });
    } else if (field == "data_offsets" && offsets == 0) {
      json.array("an array of two data_offsets", [&] {
        if (offsets == 2) {
          json.fail_here(fmt::format("tensor '{}' has more than two data_offsets", shown_name(entry.name)));
        }
        (offsets == 0 ? entry.begin : entry.end) = static_cast<std::uint64_t>(json.number());
        ++offsets;
      });
    } else {
      const bool is_known = field == "dtype" || field == "shape" || field == "data_offsets";
      json.fail_here(fmt::format("tensor '{}' has {} '{}', expected dtype, shape and data_offsets once each",
                                 shown_name(entry.name), is_known ? "two" : "the field", shown_name(field)));
    }
  });
  if (entry.type == nullptr || !has_shape || offsets != 2) {
    json.fail_here(fmt::format("tensor '{}' lacks its {}", shown_name(entry.name),
                               entry.type == nullptr ? "dtype"
                               : !has_shape          ? "shape"
                                                     : "two data_offsets"));
  }
}

// Seven bits a byte, the lowest first: no size takes more bytes than it has digits.
void SafetensorsHeader::add_dim(std::int64_t size) {
  auto rest = static_cast<std::uint64_t>(size);
  for (; rest >= 0x80; rest >>= 7) {
    dims_.push_back(static_cast<std::uint8_t>(rest | 0x80));
  }
  dims_.push_back(static_cast<std::uint8_t>(rest));
}

SafetensorsHeader::SafetensorsHeader(const std::string& path, std::uint64_t file_bytes, const Read& read) {
  std::array<char, 32> start{};
  const std::span<char> seen(start.data(), static_cast<std::size_t>(std::min<std::uint64_t>(start.size(), file_bytes)));
  read(0, seen);
  const auto check_file = [&](bool holds, std::string_view expected) {
    if (!holds) {
      const std::string other = other_format(seen);
      fail<IoError>("safetensors '{}': {}", path, other.empty() ? expected : other);
    }
  };
  check_file(file_bytes >= kLengthBytes + 2,
             fmt::format("the file has {} bytes, and the shortest has 10: it is empty or cut off", file_bytes));
  std::uint64_t length = 0;
  std::memcpy(&length, start.data(), kLengthBytes);
  static_assert(std::endian::native == std::endian::little);
  check_file(
      length <= kMaxHeader && length <= file_bytes - kLengthBytes,
      fmt::format("byte 0 says that the header has {} bytes; expected at most {}: this is another format, or the "
                  "file is cut off",
                  length, std::min(kMaxHeader, file_bytes - kLengthBytes)));
  data_offset_ = kLengthBytes + length;
  JsonScanner json(path, read, kLengthBytes, data_offset_);
  bool has_metadata = false;
  json.object("'{', with which a header begins", [&](const std::string& name) {
    if (name != kMetadata) {
      read_entry(json, name);
    } else if (std::exchange(has_metadata, true)) {
      json.fail_here("there are two \"__metadata__\"");
    } else {
      read_metadata(json);
    }
  });
  json.expect_end();

  const auto count = static_cast<std::uint32_t>(entries_.size());
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), 0U);
  std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::tie(entries_[a].begin, entries_[a].end, a) < std::tie(entries_[b].begin, entries_[b].end, b);
  });
  by_name_.resize(count);
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return entry(a).name < entry(b).name; });
  const auto refuse = [&](const Entry& at, const std::string& words) {
    fail<IoError>("safetensors '{}': tensor '{}' {}", path, shown_name(at.name), words);
  };
  for (std::uint32_t i = 1; i < count; ++i) {
    if (entry(by_name_[i - 1]).name == entry(by_name_[i]).name) {
      refuse(entry(by_name_[i]), "is there twice");
    }
  }
  std::vector<std::string_view> keys;
  for (const auto& [key, text] : metadata_) {
    keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
    fail<IoError>("safetensors '{}': \"__metadata__\" has '{}' twice", path, shown_name(*twice));
  }

  const std::uint64_t data = file_bytes - data_offset_;
  std::uint64_t end = 0;
  for (std::uint32_t place = 0; place < count; ++place) {
    const Entry& e = entry(place);
    if (e.begin != end || e.end < e.begin) {
      refuse(e, fmt::format("has data_offsets [{}, {}], expected it to begin at {}: tensors cover the data without "
                            "holes and overlaps",
                            e.begin, e.end, end));
    }
    if (e.end > data) {
      refuse(e, fmt::format("ends at byte {} of the data, and the file has {}: it is cut off", e.end, data));
    }
    end = e.end;
    // Counts bits, as types of four and six bits exist.
    auto bits = static_cast<std::uint64_t>(e.type->bits);
    bool fits = e.end - e.begin <= std::numeric_limits<std::uint64_t>::max() / 8;
    for (const std::int64_t size : shape(e)) {
      fits = !__builtin_mul_overflow(bits, static_cast<std::uint64_t>(size), &bits) && fits;
    }
    if (!fits || bits != 8 * (e.end - e.begin)) {
      refuse(e, fmt::format("is {} {}, which does not fit into its {} bytes", e.type->name, to_string(shape(e)),
                            e.end - e.begin));
    }
  }
  if (end != data) {
    fail<IoError>("safetensors '{}': {} bytes too many follow the last tensor, expected the end of the file", path,
                  data - end);
  }
}

Shape SafetensorsHeader::shape(const Entry& entry) const {
  Shape shape;
  std::size_t at = entry.first_dim;
  for (std::uint8_t d = 0; d < entry.dims; ++d) {
    std::uint64_t size = 0;
    for (unsigned shift = 0;; shift += 7) {
      const std::uint64_t part = dims_[at++];
      size |= (part & 0x7f) << shift;
      if (part < 0x80) {
        break;
      }
    }
    shape.push_back(static_cast<std::int64_t>(size));
  }
  return shape;
}

std::size_t SafetensorsHeader::rank_of_name(std::size_t place) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), entry(place).name,
                                      [&](std::uint32_t p, const std::string& name) { return entry(p).name < name; });
  return static_cast<std::size_t>(found - by_name_.begin());
}

std::optional<std::size_t> SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](std::uint32_t p, std::string_view n) { return entry(p).name < n; });
  return found != by_name_.end() && entry(*found).name == name ? std::optional<std::size_t>(*found) : std::nullopt;
}

namespace {

std::string json_text(std::string_view text) {
  try {
    return json(text).dump();
  } catch (const json::type_error&) {
    fail<ConfigError>("safetensors: '{}' is not UTF-8, and names and metadata must be", shown_name(text));
  }
}

}  // namespace

const std::string* value_of(const Metadata& metadata, std::string_view name) {
  const auto found =
      std::find_if(metadata.begin(), metadata.end(), [&](const auto& pair) { return pair.first == name; });
  return found == metadata.end() ? nullptr : &found->second;
}

std::string text_of(const Metadata& metadata, std::string_view name) {
  const std::string* text = value_of(metadata, name);
  return text != nullptr ? *text : std::string();
}

void check_names(const std::vector<StoredTensor>& tensors) {
  std::vector<std::string_view> names;
  for (const StoredTensor& tensor : tensors) {
    check<ConfigError>(tensor.name != kMetadata, "safetensors: no tensor can be called '__metadata__'");
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  check<ConfigError>(twice == names.end(), "safetensors: two tensors are called '{}'",
                     twice == names.end() ? "" : shown_name(*twice));
}

std::string safetensors_header(const std::vector<StoredTensor>& tensors, const Metadata& metadata) {
  std::string text(kLengthBytes, '\0');
  text += '{';
  if (!metadata.empty()) {
    text += json_text(kMetadata) + ":{";
    for (const auto& [key, value] : metadata) {
      text += fmt::format("{}:{},", json_text(key), json_text(value));
    }
    text.back() = '}';
    text += ',';
  }
  std::uint64_t offset = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::uint64_t end = offset + static_cast<std::uint64_t>(tensor.shape.numel()) * item_size(tensor.dtype);
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},", json_text(tensor.name),
                        stored_type(tensor.dtype).name, fmt::join(tensor.shape, ","), offset, end);
    offset = end;
  }
  if (text.back() == ',') {
    text.back() = '}';
  } else {
    text += '}';
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size() - kLengthBytes;
  check<ConfigError>(metadata.size() <= kMaxMetadata,
                     "safetensors: the metadata has {} texts, and a file holds at most {}", metadata.size(),
                     kMaxMetadata);
  check<ConfigError>(length <= kMaxHeader,
                     "safetensors: the names and shapes of {} tensors take {} bytes, and a file holds at most {}",
                     tensors.size(), length, kMaxHeader);
  std::memcpy(text.data(), &length, kLengthBytes);
  return text;
}

}  // namespace tandem::inline v0::checkpoint

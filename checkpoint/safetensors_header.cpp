#include <tandem/checkpoint/safetensors_header.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/check.h>
#include <tandem/core/error.h>

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

std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::string shown = text.size() > kShown ? std::string(text.substr(0, kShown)) + "..." : std::string(text);
  std::replace_if(shown.begin(), shown.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '.');
  return shown;
}

// Formats that are often taken for this one.
std::string other_format(std::span<const char> start) {
  const std::string_view text(start.data(), start.size());
  constexpr std::string_view kToSafetensors =
      "is read by running what it says, so tandem does not read it. In Python: import torch; from safetensors.torch "
      "import save_file; save_file(torch.load('model.pt', weights_only=True), 'model.safetensors')";
  if (text.starts_with("PK\x03\x04")) {
    return fmt::format("this is a zip archive, as torch.save writes: PyTorch's .pt {}", kToSafetensors);
  }
  if (text.starts_with("\x80\x02") || text.starts_with("\x80\x04") || text.starts_with("\x80\x05")) {
    return fmt::format("this is a pickle, as old versions of torch.save write: it {}", kToSafetensors);
  }
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kOthers{{
      {"version https://git-lfs", "this is Git LFS's pointer to the file, not the file: run git lfs pull"},
      {"\x93NUMPY", "this is a NumPy array: read it with data::load_npy"},
      {"\x89HDF", "this is an HDF5 file; convert it with safetensors' Python package"},
      {"GGUF", "this is a GGUF file; convert it with safetensors' Python package"},
      {"\x1f\x8b", "this is gzip data: unpack it first (gunzip)"},
  }};
  for (const auto& [magic, words] : kOthers) {
    if (text.starts_with(magic)) {
      return std::string(words);
    }
  }
  return {};
}

// Reads a part of a file in small pieces, as an input iterator over characters.
class Characters {
 public:
  Characters(const SafetensorsHeader::Read& read, std::uint64_t offset, std::uint64_t bytes)
      : read_(read), offset_(offset), left_(bytes) {
    refill();
  }

  bool at_end() const noexcept { return next_ == end_; }
  /// JSON has none, and the parser would take it for the end.
  bool has_nul() const noexcept { return has_nul_; }
  char current() const noexcept { return buffer_[next_]; }
  void advance() {
    if (++next_ == end_) {
      refill();
    }
  }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = char;

    explicit Iterator(Characters* characters = nullptr) : characters_(characters) {}
    char operator*() const { return characters_->current(); }
    Iterator& operator++() {
      characters_->advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.is_end() == b.is_end(); }

   private:
    bool is_end() const { return characters_ == nullptr || characters_->at_end(); }
    Characters* characters_;
  };

 private:
  void refill() {
    next_ = 0;
    end_ = static_cast<std::size_t>(std::min<std::uint64_t>(left_, buffer_.size()));
    if (end_ > 0) {
      read_(offset_, std::span(buffer_.data(), end_));
      has_nul_ = has_nul_ || std::memchr(buffer_.data(), 0, end_) != nullptr;
      offset_ += end_;
      left_ -= end_;
    }
  }

  const SafetensorsHeader::Read& read_;
  std::uint64_t offset_;
  std::uint64_t left_;
  std::array<char, 16384> buffer_;
  std::size_t next_ = 0;
  std::size_t end_ = 0;
  bool has_nul_ = false;
};

}  // namespace

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

// Receives the parts of the JSON text in order. It allows exactly what the format has:
// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"key": "text"}}.
class SafetensorsHeader::Reader final : public nlohmann::json_sax<json> {
 public:
  Reader(SafetensorsHeader& header, const std::string& path) : header_(header), path_(path) {}

  bool key(std::string& text) override {
    if (depth_ == 1) {
      if (text == kMetadata) {
        check(!has_metadata_, "there are two \"__metadata__\"");
        has_metadata_ = true;
      }
      in_metadata_ = text == kMetadata;
      if (!in_metadata_) {
        check(header_.entries_.size() < std::numeric_limits<std::uint32_t>::max(), "there are too many tensors");
        header_.entries_.push_back({.name = text, .first_dim = static_cast<std::uint32_t>(header_.dims_.size())});
        given_ = 0;
      }
    } else if (in_metadata_) {
      check(header_.metadata_.size() < kMaxMetadata, "\"__metadata__\" has more than 4096 texts");
      header_.metadata_.emplace_back(text, std::string());
    } else {
      field_ = text == "dtype" ? Field::dtype : text == "shape" ? Field::shape : Field::offsets;
      check(field_ != Field::offsets || text == "data_offsets",
            fmt::format("tensor '{}': expected dtype, shape and data_offsets, found '{}'", name(), shown(text)));
      const unsigned bit = 1U << static_cast<unsigned>(field_);
      check((given_ & bit) == 0, fmt::format("tensor '{}' has two '{}'", name(), shown(text)));
      given_ |= bit;
      numbers_ = 0;
    }
    return true;
  }

  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_) {
      header_.metadata_.back().second = text;
    } else if (depth_ == 2 && field_ == Field::dtype) {
      entry().type = stored_type(text);
      check(entry().type != nullptr, fmt::format("tensor '{}' has the unknown dtype '{}'", name(), shown(text)));
    } else {
      refuse("a text");
    }
    return true;
  }

  bool number_unsigned(std::uint64_t number) override {
    if (depth_ != 2 || !in_array_) {
      refuse("a number");
    }
    check(number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()),
          fmt::format("tensor '{}': {} is beyond 2^63 - 1", name(), number));
    if (field_ == Field::shape) {
      check(entry().dims < kMaxDims, fmt::format("tensor '{}' has more than {} dimensions", name(), kMaxDims));
      ++entry().dims;
      header_.dims_.push_back(static_cast<std::int64_t>(number));
    } else {
      check(numbers_ < 2, fmt::format("tensor '{}' has more than two data_offsets", name()));
      (numbers_ == 0 ? entry().begin : entry().end) = number;
      ++numbers_;
    }
    return true;
  }

  bool start_object(std::size_t /*elements*/) override {
    if (in_array_ || depth_ == 2) {
      refuse("an object");
    }
    ++depth_;
    return true;
  }

  bool end_object() override {
    if (--depth_ == 1 && !in_metadata_) {
      check(given_ == 7U, fmt::format("tensor '{}' lacks its {}", name(),
                                      (given_ & 1U) == 0   ? "dtype"
                                      : (given_ & 2U) == 0 ? "shape"
                                                           : "data_offsets"));
    }
    return true;
  }

  bool start_array(std::size_t /*elements*/) override {
    if (depth_ != 2 || in_metadata_ || in_array_ || field_ == Field::dtype) {
      refuse("an array");
    }
    in_array_ = true;
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    check(field_ != Field::offsets || numbers_ == 2,
          fmt::format("tensor '{}': expected two data_offsets, found {}", name(), numbers_));
    return true;
  }

  bool null() override { refuse("null"); }
  bool boolean(bool /*value*/) override { refuse("a bool"); }
  bool number_integer(std::int64_t number) override { refuse(fmt::format("{}", number)); }
  bool number_float(double /*number*/, const std::string& text) override { refuse(shown(text)); }
  bool binary(json::binary_t& /*bytes*/) override { refuse("binary data"); }

  bool parse_error(std::size_t position, const std::string& token, const json::exception& /*error*/) override {
    fail<IoError>(
        "safetensors '{}', byte {}: the header is not valid JSON at '{}': the file is damaged, or another "
        "program wrote it wrongly",
        path_, kLengthBytes + position - std::min<std::size_t>(position, 1), shown(token));
  }

 private:
  enum class Field : unsigned char { dtype, shape, offsets };

  Entry& entry() { return header_.entries_.back(); }
  std::string name() { return shown(entry().name); }

  void check(bool holds, const std::string& words) const {
    tandem::check<IoError>(holds, "safetensors '{}': {}", path_, words);
  }
  [[noreturn]] void refuse(const std::string& found) {
    const bool in_tensor = depth_ == 2 && !in_metadata_ && !header_.entries_.empty();
    fail<IoError>("safetensors '{}': found {} in the header{}, expected {}", path_, found,
                  in_tensor ? fmt::format(" in tensor '{}'", name()) : "",
                  depth_ == 0    ? "an object"
                  : depth_ == 1  ? "an object for each name"
                  : in_metadata_ ? "texts in \"__metadata__\""
                  : in_array_    ? "whole numbers from 0 on"
                                 : "a dtype as text, and shape and data_offsets as arrays");
  }

  SafetensorsHeader& header_;
  const std::string& path_;
  int depth_ = 0;
  bool in_metadata_ = false;
  bool has_metadata_ = false;
  bool in_array_ = false;
  Field field_ = Field::dtype;
  unsigned given_ = 0;  // a bit for each Field
  int numbers_ = 0;     // of data_offsets
};

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
  Characters characters(read, kLengthBytes, length);
  // The parser would skip a byte order mark.
  check_file(!characters.at_end() && static_cast<unsigned char>(characters.current()) < 0x80,
             "byte 8: the header does not begin with '{'");
  Reader reader(*this, path);
  json::sax_parse(Characters::Iterator(&characters), Characters::Iterator(), &reader);
  check<IoError>(!characters.has_nul(), "safetensors '{}': the header has a NUL byte: the file is damaged", path);

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
  for (std::uint32_t i = 1; i < count; ++i) {
    check<IoError>(entry(by_name_[i - 1]).name != entry(by_name_[i]).name,
                   "safetensors '{}': two tensors are called '{}'", path, shown(entry(by_name_[i]).name));
  }
  std::vector<std::string_view> keys;
  for (const auto& [key, text] : metadata_) {
    keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  check<IoError>(twice == keys.end(), "safetensors '{}': \"__metadata__\" has '{}' twice", path,
                 twice == keys.end() ? "" : shown(*twice));

  const std::uint64_t data = file_bytes - data_offset_;
  std::uint64_t end = 0;
  for (std::uint32_t place = 0; place < count; ++place) {
    const Entry& e = entry(place);
    check<IoError>(e.begin == end && e.end >= e.begin,
                   "safetensors '{}': tensor '{}' has data_offsets [{}, {}], expected it to begin at {}: tensors cover "
                   "the data without holes and overlaps",
                   path, shown(e.name), e.begin, e.end, end);
    check<IoError>(e.end <= data,
                   "safetensors '{}': tensor '{}' ends at byte {} of the data, and the file has {}: it is cut off",
                   path, shown(e.name), e.end, data);
    end = e.end;
    // Counts bits, as types of four and six bits exist.
    std::uint64_t bits = static_cast<std::uint64_t>(e.type->bits);
    bool fits = e.end - e.begin <= std::numeric_limits<std::uint64_t>::max() / 8;
    for (std::uint8_t d = 0; d < e.dims; ++d) {
      fits = !__builtin_mul_overflow(bits, static_cast<std::uint64_t>(dims_[e.first_dim + d]), &bits) && fits;
    }
    check<IoError>(fits && bits == 8 * (e.end - e.begin),
                   "safetensors '{}': tensor '{}' is {} {}, which does not fit into its {} bytes", path, shown(e.name),
                   e.type->name, to_string(shape(e)), e.end - e.begin);
  }
  check<IoError>(end == data, "safetensors '{}': {} bytes follow the last tensor, expected the end of the file", path,
                 data - end);
}

Shape SafetensorsHeader::shape(const Entry& entry) const {
  Shape shape;
  for (std::uint8_t d = 0; d < entry.dims; ++d) {
    shape.push_back(dims_[entry.first_dim + d]);
  }
  return shape;
}

std::optional<std::size_t> SafetensorsHeader::find(std::string_view name) const {
  const auto place = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](std::uint32_t p, std::string_view n) { return entry(p).name < n; });
  return place != by_name_.end() && entry(*place).name == name ? std::optional<std::size_t>(*place) : std::nullopt;
}

namespace {

std::string json_text(std::string_view text) {
  try {
    return json(text).dump();
  } catch (const json::type_error&) {
    fail<ConfigError>("safetensors: '{}' is not UTF-8, and names and metadata must be", shown(text));
  }
}

}  // namespace

void check_names(const std::vector<StoredTensor>& tensors) {
  std::vector<std::string_view> names;
  for (const StoredTensor& tensor : tensors) {
    check<ConfigError>(tensor.name != kMetadata, "safetensors: no tensor can be called '__metadata__'");
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  check<ConfigError>(twice == names.end(), "safetensors: two tensors are called '{}'",
                     twice == names.end() ? "" : shown(*twice));
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
  check<ConfigError>(length <= kMaxHeader,
                     "safetensors: the names and shapes of {} tensors take {} bytes, and a file holds at most {}",
                     tensors.size(), length, kMaxHeader);
  std::memcpy(text.data(), &length, kLengthBytes);
  return text;
}

}  // namespace tandem::inline v0::checkpoint

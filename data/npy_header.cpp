#include <tandem/data/npy_header.h>

#include <algorithm>
#include <bit>
#include <optional>

#include <fmt/ranges.h>

#include <tandem/core/check.h>
#include <tandem/data/diagnostics.h>

namespace tandem::inline v0::data {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMagic = "\x93NUMPY"sv;
constexpr std::size_t kVersionBytes = 2;
constexpr std::size_t kMaxHeaderBytes = kMaxNpyHeader - 12;
constexpr std::size_t kAlignment = 64;
constexpr char kNativeOrder = std::endian::native == std::endian::little ? '<' : '>';

constexpr NpyType kTypes[] = {
    {NpyElement::f2, "f2", 2, DType::f16},     {NpyElement::f4, "f4", 4, DType::f32},
    {NpyElement::f8, "f8", 8, DType::f64},     {NpyElement::i8, "i8", 8, DType::i64},
    {NpyElement::i4, "i4", 4, DType::i32},     {NpyElement::u1, "u1", 1, DType::u8},
    {NpyElement::b1, "b1", 1, DType::boolean}, {NpyElement::i1, "i1", 1, DType::i32},
    {NpyElement::i2, "i2", 2, DType::i32},     {NpyElement::u2, "u2", 2, DType::i32},
    {NpyElement::u4, "u4", 4, DType::i64},
};

struct Refused {
  std::string_view code;  // beginning of the type code
  std::string_view name;
  std::string_view advice;
};

constexpr std::string_view kAsFloat = "save array.astype(np.float32)";
constexpr Refused kRefused[] = {
    {"f", "floating point of more than 64 bits", "save array.astype(np.float64)"},
    {"u8", "unsigned 64-bit integers, some of which i64 does not hold", "save array.astype(np.int64)"},
    {"c", "complex numbers", "save array.real and array.imag as two files"},
    {"O", "Python objects, which only code from the file could make, and none is ever run", kAsFloat},
    {"S", "byte strings", "save numbers, such as the inverse of np.unique(array, return_inverse=True)"},
    {"a", "byte strings", "save numbers, such as the inverse of np.unique(array, return_inverse=True)"},
    {"U", "text", "save numbers, such as the inverse of np.unique(array, return_inverse=True)"},
    {"M", "dates", "save array.astype(np.int64)"},
    {"m", "time spans", "save array.astype(np.int64)"},
    {"V", "raw bytes or records", "save array.view(np.uint8), or each field array['name'] as a file"},
};

// Parses the dictionary of the header: a Python literal with three known keys. All other Python is rejected.
class Dictionary {
 public:
  Dictionary(std::string_view text, std::size_t offset, const std::string& name)
      : text_(text), offset_(offset), name_(name) {}

  NpyHeader read() {
    expect('{', "'{'");
    while (!next_is('}')) {
      read_entry();
      if (!take(',')) {
        break;
      }
    }
    expect('}', "',' or '}'");
    skip_blanks();
    check<IoError>(at_ == text_.size(), "{}: byte {}: expected only blanks after the header's '}}', found {}", name_,
                   offset_ + at_, found());
    check_there(has_type_, "descr");
    check_there(has_order_, "fortran_order");
    check_there(has_shape_, "shape");
    return header_;
  }

  /// Offset of the shape in the file, for errors about the shape.
  std::size_t shape_offset() const { return shape_offset_; }

 private:
  void read_entry() {
    skip_blanks();
    const std::size_t begin = at_;
    const std::string_view key = read_string("a key in quotes");
    expect(':', "':'");
    skip_blanks();
    if (key == "descr") {
      check_once(has_type_, key, begin);
      read_type();
    } else if (key == "fortran_order") {
      check_once(has_order_, key, begin);
      header_.fortran_order = read_bool();
    } else if (key == "shape") {
      check_once(has_shape_, key, begin);
      shape_offset_ = offset_ + at_;
      read_shape();
    } else {
      fail<IoError>("{}: byte {}: unknown key {} in the header; expected 'descr', 'fortran_order' and 'shape'", name_,
                    offset_ + begin, excerpt(key));
    }
  }

  void read_type() {
    const std::size_t begin = at_;
    if (next_is('[') || next_is('(')) {
      fail<IoError>(
          "{}: byte {}: the array is structured (its elements have fields); save each field array['name'] as a file",
          name_, offset_ + begin);
    }
    const std::string_view descr = read_string("an element type in quotes");
    std::string_view code = descr;
    char order = kNativeOrder;
    if (!code.empty() && "<>|="sv.find(code.front()) != std::string_view::npos) {
      order = code.front() == '<' || code.front() == '>' ? code.front() : kNativeOrder;
      code.remove_prefix(1);
    }
    for (const NpyType& type : kTypes) {
      if (type.code == code) {
        header_.type = &type;
        header_.swapped = order != kNativeOrder;
        return;
      }
    }
    for (const Refused& refused : kRefused) {
      if (code.starts_with(refused.code)) {
        fail<IoError>("{}: byte {}: the array holds {} ({}), which cannot be read; {}", name_, offset_ + begin,
                      refused.name, excerpt(descr), refused.advice);
      }
    }
    fail<IoError>("{}: byte {}: unknown element type {}; expected one like '<f4': f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 or b1",
                  name_, offset_ + begin, excerpt(descr));
  }

  void read_shape() {
    expect('(', "a shape such as (3, 4)");
    bool has_comma = false;
    while (!next_is(')')) {
      const std::size_t begin = at_;
      const std::int64_t size = read_size();
      check<IoError>(header_.shape.ndim() < kMaxDims, "{}: byte {}: more than {} dimensions", name_, offset_ + begin,
                     kMaxDims);
      header_.shape.push_back(size);
      if (!take(',')) {
        break;
      }
      has_comma = true;
    }
    if (header_.shape.ndim() == 1 && !has_comma && next_is(')')) {
      fail_expected("',' after the only size, as in (3,)");  // in Python, (3) is a number
    }
    expect(')', "',' or ')'");
  }

  std::int64_t read_size() {
    skip_blanks();
    const std::size_t begin = at_;
    std::int64_t size = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      check<IoError>(!__builtin_mul_overflow(size, 10, &size) && !__builtin_add_overflow(size, text_[at_] - '0', &size),
                     "{}: byte {}: a size that is more than can be counted; the header is corrupt", name_,
                     offset_ + begin);
    }
    const bool has_leading_zero = at_ - begin > 1 && text_[begin] == '0';
    if (at_ == begin || has_leading_zero) {
      at_ = begin;
      fail_expected("a size, a whole number from 0 on");
    }
    if (at_ < text_.size() && text_[at_] == 'L') {
      ++at_;  // suffix written by Python 2
    }
    return size;
  }

  std::string_view read_string(std::string_view what) {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    const std::size_t close = quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (close == std::string_view::npos) {
      fail_expected(what);
    }
    const std::string_view content = text_.substr(at_ + 1, close - at_ - 1);
    if (content.find('\\') != std::string_view::npos) {
      fail_expected(fmt::format("{} without a backslash", what));
    }
    at_ = close + 1;
    return content;
  }

  bool read_bool() {
    for (const bool value : {false, true}) {
      if (const std::string_view word = value ? "True" : "False"; text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    fail_expected("True or False");
  }

  void skip_blanks() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  bool next_is(char c) {
    skip_blanks();
    return at_ < text_.size() && text_[at_] == c;
  }

  bool take(char c) {
    const bool there = next_is(c);
    at_ += there ? 1 : 0;
    return there;
  }

  void expect(char c, std::string_view what) {
    if (!take(c)) {
      fail_expected(what);
    }
  }

  void check_once(bool& there, std::string_view key, std::size_t begin) const {
    check<IoError>(!there, "{}: byte {}: key '{}' appears twice in the header", name_, offset_ + begin, key);
    there = true;
  }

  void check_there(bool there, std::string_view key) const {
    check<IoError>(there, "{}: byte {}: the header has no key '{}'; expected 'descr', 'fortran_order' and 'shape'",
                   name_, offset_, key);
  }

  [[noreturn]] void fail_expected(std::string_view what) const {
    fail<IoError>("{}: byte {}: expected {} in the header, found {}", name_, offset_ + at_, what, found());
  }

  std::string found() const { return at_ < text_.size() ? excerpt(text_.substr(at_)) : "its end"; }

  std::string_view text_;
  std::size_t offset_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::size_t shape_offset_ = 0;
  NpyHeader header_;
  bool has_type_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

[[noreturn]] void fail_not_npy(std::string_view head, const std::string& name) {
  const std::string_view guess = recognise(head);
  std::string hint = guess.empty() ? "" : fmt::format("; this looks like {}", guess);
  if (head.starts_with("PK\x03\x04")) {
    hint = "; this looks like a zip archive: if it is an .npz file, save each of its arrays with np.save";
  } else if (head.starts_with("\x1f\x8b")) {
    hint = "; this is gzip data: unpack it first (gunzip)";
  } else if (head.starts_with("\x80")) {
    hint = "; this looks like a Python pickle, which is never read: save the array with np.save";
  } else if (guess.empty() && looks_like_text(head)) {
    hint = "; this looks like a text file, perhaps CSV";
  }
  fail<IoError>("{}: byte 0: not a NumPy file: expected '\\x93NUMPY', found {}{}", name,
                excerpt(head.substr(0, kMagic.size()), kMagic.size()), hint);
}

// The bytes after the header. Zeros are left out of the product: an array with a zero is never too large, but the
// product of its other sizes must still not overflow.
std::size_t count_bytes(const NpyHeader& header, std::size_t shape_offset, const std::string& name) {
  std::int64_t expected = static_cast<std::int64_t>(header.type->bytes);
  // The tensor may need more bytes than the file, because some types are widened.
  std::int64_t stored = static_cast<std::int64_t>(item_size(header.type->stored));
  bool is_empty = false;
  for (const std::int64_t size : header.shape) {
    is_empty = is_empty || size == 0;
    const std::int64_t factor = std::max<std::int64_t>(size, 1);
    check<IoError>(
        !__builtin_mul_overflow(expected, factor, &expected) && !__builtin_mul_overflow(stored, factor, &stored),
        "{}: byte {}: shape {} is more than can be counted; the header is corrupt", name, shape_offset, header.shape);
  }
  return is_empty ? 0 : static_cast<std::size_t>(expected);
}

// A header, and the number of bytes that must follow it.
struct Start {
  NpyHeader header;
  std::size_t needed;
};

Start read_start(std::span<const std::uint8_t> file, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(kMagic)) {
    fail_not_npy(text.substr(0, 64), name);
  }
  const std::size_t version_end = kMagic.size() + kVersionBytes;
  const std::size_t length_bytes = file.size() > kMagic.size() && file[kMagic.size()] == 1 ? 2 : 4;
  check<IoError>(file.size() >= version_end + length_bytes,
                 "{}: byte {}: the file ends inside its header; expected a version and the header's length", name,
                 file.size());
  const int major = file[kMagic.size()];
  const int minor = file[kMagic.size() + 1];
  check<IoError>(major >= 1 && major <= 3 && minor == 0,
                 "{}: byte {}: version {}.{} of the format; expected 1.0, 2.0 or 3.0", name, kMagic.size(), major,
                 minor);
  std::size_t header_bytes = 0;
  for (std::size_t i = length_bytes; i > 0; --i) {
    header_bytes = header_bytes << 8U | file[version_end + i - 1];
  }
  check<IoError>(header_bytes <= kMaxHeaderBytes,
                 "{}: byte {}: a header of {} bytes, the limit is {}; the file is corrupt", name, version_end,
                 header_bytes, kMaxHeaderBytes);
  const std::size_t begin = version_end + length_bytes;
  check<IoError>(file.size() - begin >= header_bytes,
                 "{}: byte {}: the file ends inside its header; expected {} header bytes after byte {}", name,
                 file.size(), header_bytes, begin);

  Dictionary dictionary(text.substr(begin, header_bytes), begin, name);
  NpyHeader header = dictionary.read();
  header.data_offset = begin + header_bytes;
  return {header, count_bytes(header, dictionary.shape_offset(), name)};
}

}  // namespace

std::size_t npy_bytes(std::span<const std::uint8_t> head) {
  try {
    const Start start = read_start(head, "");
    return start.header.data_offset + start.needed;
  } catch (const IoError&) {
    return 0;
  }
}

NpyHeader read_npy_header(std::span<const std::uint8_t> file, const std::string& name) {
  const auto [header, needed] = read_start(file, name);
  const std::size_t there = file.size() - header.data_offset;
  check<IoError>(
      there >= needed,
      "{}: byte {}: the file ends early: shape {} of {} needs {} bytes after the header, found {} [TDM-E510]", name,
      file.size(), header.shape, header.type->code, needed, there);
  check<IoError>(there == needed,
                 "{}: byte {}: too many bytes: shape {} of {} needs {} bytes after the header, and more follow; a file "
                 "holds one array",
                 name, header.data_offset + needed, header.shape, header.type->code, needed);
  return header;
}

std::string npy_header(DType dtype, const Shape& shape) {
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                 [&](const NpyType& t) { return t.stored == dtype && t.bytes == item_size(dtype); });
  check<DTypeError>(type != std::end(kTypes), "save_npy: NumPy files hold no {}; convert with .to(DType::f32)", dtype);
  const std::string dictionary = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                             type->bytes == 1 ? '|' : kNativeOrder, type->code, fmt::join(shape, ", "),
                                             shape.ndim() == 1 ? "," : "");
  constexpr std::size_t kLengthBytes = 2;
  const std::size_t before = kMagic.size() + kVersionBytes + kLengthBytes;
  const std::size_t end = (before + dictionary.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t length = end - before;
  std::string header(kMagic);
  header += "\1\0"sv;
  header += static_cast<char>(length & 0xffU);
  header += static_cast<char>(length >> 8U);
  header += dictionary;
  header.resize(end - 1, ' ');
  header += '\n';
  return header;
}

}  // namespace tandem::inline v0::data

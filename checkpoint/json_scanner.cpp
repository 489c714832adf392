#include <tandem/checkpoint/json_scanner.h>

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::checkpoint {

namespace {

constexpr int kEnd = -1;

std::string character(int code) {
  return code == kEnd                  ? std::string("the end of the header")
         : code < 0x20 || code >= 0x7f ? fmt::format("the byte 0x{:02x}", code)
                                       : fmt::format("'{}'", static_cast<char>(code));
}

// The number of bytes of a UTF-8 character with this first byte, and the range of its second byte (RFC 3629).
struct Utf8 {
  int bytes;
  int low = 0x80;
  int high = 0xbf;
};
Utf8 utf8_of(int first) {
  if (first < 0x80) {
    return {1};
  }
  if (first >= 0xc2 && first <= 0xdf) {
    return {2};
  }
  if (first >= 0xe0 && first <= 0xef) {
    return {3, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf};
  }
  if (first >= 0xf0 && first <= 0xf4) {
    return {4, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf};
  }
  return {0};
}

template <class Put>
void put_utf8(unsigned code, const Put& put) {
  if (code < 0x80) {
    put(code);
    return;
  }
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

}  // namespace

JsonScanner::JsonScanner(const std::string& path, const Read& read, std::uint64_t begin, std::uint64_t end)
    : path_(path), read_(read), end_(end), at_(begin), start_(begin) {}

int JsonScanner::peek() {
  if (at_ == end_) {
    return kEnd;
  }
  if (at_ < buffered_ || at_ >= buffered_ + filled_) {
    filled_ = static_cast<std::size_t>(std::min<std::uint64_t>(buffer_.size(), end_ - at_));
    buffered_ = at_;
    read_(at_, std::span(buffer_.data(), filled_));
  }
  return static_cast<unsigned char>(buffer_[static_cast<std::size_t>(at_ - buffered_)]);
}

int JsonScanner::next() {
  const int code = peek();
  at_ += code == kEnd ? 0 : 1;
  return code;
}

void JsonScanner::skip_space() {
  for (int code = peek(); code == ' ' || code == '\n' || code == '\r' || code == '\t'; code = peek()) {
    ++at_;
  }
  start_ = at_;
}

void JsonScanner::seek(std::uint64_t offset) { at_ = offset; }

void JsonScanner::fail_here(const std::string& words) const {
  fail<IoError>("safetensors '{}', byte {}: {}", path_, start_, words);
}

void JsonScanner::refuse(std::string_view expectation) {
  start_ = at_;
  fail_here(fmt::format("expected {}, found {}: the header is damaged, or another program wrote it wrongly",
                        expectation, character(peek())));
}

void JsonScanner::expect(char wanted, std::string_view expectation) {
  if (!accept(wanted)) {
    refuse(expectation);
  }
}

bool JsonScanner::accept(char wanted) {
  skip_space();
  const bool is_next = peek() == wanted;
  at_ += is_next ? 1 : 0;
  return is_next;
}

void JsonScanner::expect_end() {
  skip_space();
  if (peek() != kEnd) {
    refuse("the end of the header");
  }
}

unsigned JsonScanner::hex_digits() {
  unsigned code = 0;
  for (int i = 0; i < 4; ++i) {
    const int digit = peek();
    const bool is_digit = digit >= '0' && digit <= '9';
    const int letter = digit | 0x20;
    if (!is_digit && (letter < 'a' || letter > 'f')) {
      refuse("four hexadecimal digits");
    }
    code = code << 4 | static_cast<unsigned>(is_digit ? digit - '0' : letter - 'a' + 10);
    ++at_;
  }
  return code;
}

template <class Put>
void JsonScanner::decode(const Put& put) {
  for (;;) {
    const int code = peek();
    if (code == '"') {
      ++at_;
      return;
    }
    if (code < 0x20) {  // or the end
      refuse("a character of a text, or its closing quote");
    }
    if (code != '\\') {
      const Utf8 form = utf8_of(code);
      if (form.bytes == 0) {
        refuse("UTF-8");
      }
      put(static_cast<unsigned>(next()));
      for (int i = 1; i < form.bytes; ++i) {
        const int more = peek();
        if (more < (i == 1 ? form.low : 0x80) || more > (i == 1 ? form.high : 0xbf)) {
          refuse("UTF-8");
        }
        put(static_cast<unsigned>(next()));
      }
      continue;
    }
    ++at_;
    switch (peek()) {
      case '"':
      case '\\':
      case '/': put(static_cast<unsigned>(next())); break;
      case 'b':
        ++at_;
        put('\b');
        break;
      case 'f':
        ++at_;
        put('\f');
        break;
      case 'n':
        ++at_;
        put('\n');
        break;
      case 'r':
        ++at_;
        put('\r');
        break;
      case 't':
        ++at_;
        put('\t');
        break;
      case 'u': {
        ++at_;
        unsigned unit = hex_digits();
        if (unit >= 0xd800 && unit < 0xdc00) {
          if (next() != '\\' || next() != 'u') {
            refuse("the second half of a surrogate pair");
          }
          const unsigned second = hex_digits();
          if (second < 0xdc00 || second >= 0xe000) {
            refuse("the second half of a surrogate pair");
          }
          unit = 0x10000 + ((unit - 0xd800) << 10) + (second - 0xdc00);
        } else if (unit >= 0xdc00 && unit < 0xe000) {
          refuse("the first half of a surrogate pair");
        }
        put_utf8(unit, put);
        break;
      }
      default: refuse("one of JSON's escapes");
    }
  }
}

std::string JsonScanner::text(std::string_view expectation) {
  expect('"', expectation);
  const std::uint64_t begin = at_;
  const std::uint64_t quote = start_;
  // Measures first: a string that grows would hold two copies.
  std::size_t bytes = 0;
  decode([&](unsigned /*byte*/) { ++bytes; });
  seek(begin);
  std::string text;
  text.reserve(bytes);
  decode([&](unsigned byte) { text.push_back(static_cast<char>(byte)); });
  start_ = quote;
  return text;
}

std::int64_t JsonScanner::number() {
  skip_space();
  const auto is_digit = [](int code) { return code >= '0' && code <= '9'; };
  if (!is_digit(peek())) {
    refuse("a whole number from 0 on");
  }
  const bool begins_with_zero = peek() == '0';
  std::int64_t value = 0;
  std::int64_t digits = 0;
  for (; is_digit(peek()); ++digits) {
    if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
        __builtin_add_overflow(value, std::int64_t{peek() - '0'}, &value)) {
      fail_here("a number is beyond 2^63 - 1");
    }
    ++at_;
  }
  const int after = peek();
  if (after == '.' || after == 'e' || after == 'E' || (begins_with_zero && digits > 1)) {
    at_ = start_;
    fail_here("expected a whole number, without leading zeros, a fraction and an exponent");
  }
  return value;
}

}  // namespace tandem::inline v0::checkpoint

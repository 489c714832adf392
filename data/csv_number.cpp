#include <tandem/data/csv_number.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <system_error>

#include <fast_float/fast_float.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace tandem::inline v0::data {

namespace {

bool is_infinity(std::string_view text) {
  constexpr std::string_view kInfinity = "infinity";
  const auto same_letter = [](char a, char b) { return (a | 0x20) == b; };
  return (text.size() == 3 || text.size() == kInfinity.size()) &&
         std::equal(text.begin(), text.end(), kInfinity.begin(), same_letter);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Most numbers of a table have few digits. Their lengths differ at random, so a branch for each digit would often be
// mispredicted. Instead, eight bytes at a time are one integer, whose lowest byte is the first.

using Word = std::uint64_t;
constexpr std::size_t kWord = sizeof(Word);
constexpr std::size_t kMaxExactDigits = 15;           // an integer of so many digits is a double, as is 10^15
constexpr std::ptrdiff_t kMostBytesRead = 3 * kWord;  // by parse_short_number()
constexpr auto kPowersOfTen = [] {
  std::array<std::int64_t, kMaxExactDigits + 1> powers{1};
  for (std::size_t i = 1; i < powers.size(); ++i) {
    powers[i] = 10 * powers[i - 1];
  }
  return powers;
}();

constexpr Word in_each_byte(Word value) { return value * 0x0101010101010101U; }

Word load(const char* at) {
  Word word = 0;
  std::memcpy(&word, at, kWord);
  if constexpr (std::endian::native == std::endian::big) {
    word = __builtin_bswap64(word);
  }
  return word;
}

// Bit k of the result tells whether byte k of 16 is no digit.
unsigned non_digits(const char* at) {
#ifdef __SSE2__
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  const __m128i values = _mm_sub_epi8(bytes, _mm_set1_epi8('0'));
  const __m128i are_digits = _mm_cmpeq_epi8(_mm_min_epu8(values, _mm_set1_epi8(9)), values);
  return static_cast<unsigned>(_mm_movemask_epi8(are_digits)) ^ 0xffffU;
#else
  const auto in_word = [](Word word) {
    word ^= in_each_byte('0');
    const Word high_bits = (((word & in_each_byte(0x7f)) + in_each_byte(0x80 - 10)) | word) & in_each_byte(0x80);
    return static_cast<unsigned>(((high_bits >> 7U) * 0x0102040810204080U) >> 56U);
  };
  return in_word(load(at)) | in_word(load(at + kWord)) << kWord;
#endif
}

// The value of up to eight digits.
std::int64_t value_in_word(const char* digits, std::size_t count) {
  Word word = load(digits) ^ in_each_byte('0');
  // Zeros come before the digits, and the bytes after them disappear. A single shift by 64 bits would be undefined.
  const std::size_t half = 4 * (kWord - count);
  word = word << half << half;
  // Neighbours are joined: to two digits, to four, to eight.
  word = (word * 10 + (word >> 8U)) & 0x00ff00ff00ff00ffU;
  word = (word * 100 + (word >> 16U)) & 0x0000ffff0000ffffU;
  word = (word * 10000 + (word >> 32U)) & 0xffffffffU;
  return static_cast<std::int64_t>(word);
}

// The value of up to 15 digits.
std::int64_t value_of(const char* digits, std::size_t count) {
  if (count <= kWord) [[likely]] {
    return value_in_word(digits, count);
  }
  return value_in_word(digits, kWord) * kPowersOfTen[count - kWord] + value_in_word(digits + kWord, count - kWord);
}

// A number without an exponent that ends within 16 bytes, so it has at most 15 digits and a point; null for others.
// Both sides of the division are exact, so the quotient is the double nearest to the number.
const char* parse_short_number(const char* begin, double& value) noexcept {
  const unsigned negative = *begin == '-' ? 1 : 0;
  const unsigned others = non_digits(begin) & ~negative;
  if (others == 0) [[unlikely]] {
    return nullptr;
  }
  const char* digits = begin + negative;
  const char* stop = begin + std::countr_zero(others);
  auto count = static_cast<std::size_t>(stop - digits);
  double magnitude = 0;
  if (*stop == '.') {
    const unsigned after_point = others & (others - 1);
    if (after_point == 0) [[unlikely]] {
      return nullptr;
    }
    const char* fraction = stop + 1;
    stop = begin + std::countr_zero(after_point);
    const auto decimals = static_cast<std::size_t>(stop - fraction);
    const std::int64_t power = kPowersOfTen[decimals];
    magnitude = static_cast<double>(value_of(digits, count) * power + value_of(fraction, decimals)) /
                static_cast<double>(power);
    count += decimals;
  } else {
    magnitude = static_cast<double>(value_of(digits, count));
  }
  if (count == 0 || (*stop | 0x20) == 'e') [[unlikely]] {
    return nullptr;
  }
  constexpr int kSignBit = 63;
  value = std::bit_cast<double>(std::bit_cast<std::uint64_t>(magnitude) | std::uint64_t{negative} << kSignBit);
  return stop;
}

// This function is not inlined, so that short numbers save no registers for it.
[[gnu::noinline]] const char* parse_long_number(const char* begin, const char* end, double& value) noexcept {
  const char* first = begin + (begin < end && *begin == '-' ? 1 : 0);
  if (first == end || !(*first == '.' || is_digit(*first))) {
    return nullptr;
  }
  const auto result = fast_float::from_chars(begin, end, value);
  const auto is_of_zero = [](char c) { return c == '0' || c == '.' || c == '-'; };
  // Some versions of the library give 0 for a number that is too small, and infinity for one that is too large.
  const bool is_in_range = value != 0 ? std::isfinite(value) : std::all_of(begin, result.ptr, is_of_zero);
  return result.ec == std::errc() && is_in_range ? result.ptr : nullptr;
}

}  // namespace

// std::from_chars with an optional '+' and without the words it accepts ("inf", "nan(...)"). Blanks inside quotes are
// removed here; the scanner has removed all others.
FieldKind parse_number(std::string_view text, double& value) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) {
    text.remove_suffix(1);
  }
  const bool has_sign = !text.empty() && (text.front() == '+' || text.front() == '-');
  const std::string_view digits = text.substr(has_sign ? 1 : 0);
  if (digits.empty() || !(digits.front() == '.' || is_digit(digits.front()))) {
    return is_infinity(digits) ? FieldKind::not_finite : FieldKind::text;
  }
  const char* begin = text.front() == '+' ? digits.data() : text.data();
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(begin, end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) {
    return FieldKind::text;
  }
  if (result.ec == std::errc::result_out_of_range) {
    // Out of range means too large, or too small, which counts as zero. Only small numbers have a negative exponent or
    // start with "0.".
    const std::string_view number(begin, static_cast<std::size_t>(end - begin));
    const auto exponent = number.find_first_of("eE");
    const bool small = exponent == std::string_view::npos ? number.find_first_of("123456789") > number.find('.')
                                                          : number.find('-', exponent) != std::string_view::npos;
    value = 0;
    return small ? FieldKind::number : FieldKind::not_finite;
  }
  return FieldKind::number;
}

const char* parse_plain_number(const char* begin, const char* end, double& value) noexcept {
  if (end - begin >= kMostBytesRead) {
    if (const char* stop = parse_short_number(begin, value); stop != nullptr) [[likely]] {
      return stop;
    }
  }
  return parse_long_number(begin, end, value);
}

}  // namespace tandem::inline v0::data

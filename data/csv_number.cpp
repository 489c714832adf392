#include <tandem/data/csv_number.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include <fast_float/fast_float.h>

namespace tandem::inline v0::data {

namespace {

bool is_infinity(std::string_view text) {
  constexpr std::string_view kInfinity = "infinity";
  const auto same_letter = [](char a, char b) { return (a | 0x20) == b; };
  return (text.size() == 3 || text.size() == kInfinity.size()) &&
         std::equal(text.begin(), text.end(), kInfinity.begin(), same_letter);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

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

}  // namespace tandem::inline v0::data

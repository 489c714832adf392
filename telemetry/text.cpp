#include <tandem/telemetry/text.h>

#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::telemetry {

namespace {

struct CodePoint {
  char32_t value;
  std::size_t bytes;
};

constexpr char32_t kReplacement = 0xFFFD;

// The code point at the start of `text`, which must not be empty. Each byte that begins no valid sequence becomes one
// replacement character.
CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1};
  }
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) {
    return {kReplacement, 1};
  }
  char32_t value = lead & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) {
      return {kReplacement, 1};
    }
    value = (value << 6) | (byte(i) & 0x3Fu);
  }
  constexpr char32_t kSmallest[] = {0x80, 0x800, 0x10000};  // a smaller value has a shorter form: malformed
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kSmallest[length - 2] || value > 0x10FFFF || surrogate) {
    return {kReplacement, 1};
  }
  return {value, length};
}

int columns_of(char32_t value) { return value < 0x1100 ? 1 : 2; }

}  // namespace

std::string clean_text(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const auto [value, bytes] = first_code_point(text);
    if (value < 0x20 || (value >= 0x7F && value < 0xA0)) {
      clean += ' ';
    } else if (value == kReplacement || value == 0xFFFE || value == 0xFFFF) {  // XML allows neither of the last two
      clean += "\xEF\xBF\xBD";
    } else {
      clean += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return clean;
}

int columns(std::string_view clean) {
  int total = 0;
  while (!clean.empty()) {
    const auto [value, bytes] = first_code_point(clean);
    total += columns_of(value);
    clean.remove_prefix(bytes);
  }
  return total;
}

std::string_view fit_columns(std::string_view clean, int limit) {
  std::size_t end = 0;
  while (end < clean.size()) {
    const auto [value, bytes] = first_code_point(clean.substr(end));
    limit -= columns_of(value);
    if (limit < 0) {
      break;
    }
    end += bytes;
  }
  return clean.substr(0, end);
}

std::string short_number(double value) {
  if (!(value >= 999.5 && value < 1e15)) {
    return fmt::format("{:.3g}", core::printable(value));
  }
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 2);
  std::string digits = fmt::format("{:.0f}", std::round(value / unit) * unit);
  for (std::size_t i = digits.size(); i > 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

}  // namespace tandem::inline v0::telemetry

#include <tandem/telemetry/axis.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace tandem::inline v0::telemetry {

namespace {

constexpr int kIntervals = 5;          // approximate number of intervals between ticks
constexpr long double kSlack = 1e-6L;  // share of a step by which rounding may move a tick past the end

int exponent_of(long double value) { return static_cast<int>(std::floor(std::log10(value) + 1e-9L)); }

// Rounds `least` to a near value of 1, 2, 5 or 10 times a power of ten; the result may be somewhat smaller.
long double round_step(long double least) {
  const long double unit = std::pow(10.0L, exponent_of(least));
  const long double multiple = least / unit;
  return unit * (multiple < 1.5L ? 1 : multiple < 3 ? 2 : multiple < 7 ? 5 : 10);
}

// "2.5e-7" for a mantissa with at most `decimals` decimals.
std::string scientific(long double value, int decimals) {
  const std::string text = fmt::format("{:.{}e}", value, decimals);
  const auto e = text.find('e');
  std::string mantissa = text.substr(0, e);
  if (mantissa.find('.') != std::string::npos) {
    mantissa.resize(mantissa.find_last_not_of('0') + 1);
    mantissa.resize(mantissa.find_last_not_of('.') + 1);
  }
  return fmt::format("{}e{}", mantissa, std::stoi(text.substr(e + 1)));
}

// One label. All labels of an axis have the same form, chosen by `largest`, the value furthest from zero.
std::string label_of(long double value, long double step, long double largest) {
  const int step_exponent = exponent_of(step);
  if (largest < 1e6L && largest >= 1e-3L) {
    return fmt::format("{:.{}f}", value, std::max(0, -step_exponent));
  }
  return value == 0 ? "0" : scientific(value, std::max(0, exponent_of(std::abs(value)) - step_exponent));
}

}  // namespace

Axis::Axis(Kind kind, double low, double high) : kind_(kind), low_(low), high_(high) {
  if (kind == Kind::log) {
    low_ = std::log10(low_);
    high_ = std::log10(high_);
  }
  const long double span = high_ - low_;
  long double room = 0;
  if (span == 0) {
    const bool unit = kind == Kind::counter || kind == Kind::log || low_ == 0;
    room = unit ? 1 : std::abs(low_) / 10;
  } else if (kind == Kind::linear || kind == Kind::log) {
    room = span / 20;
  }
  // Leave no room below zero for data that are never negative, such as a loss, nor above zero for data never positive.
  const bool touches_zero = kind == Kind::linear && span > 0;
  low_ = touches_zero && low >= 0 ? std::max(low_ - room, 0.0L) : low_ - room;
  high_ = touches_zero && high <= 0 ? std::min(high_ + room, 0.0L) : high_ + room;

  if (kind == Kind::log) {
    add_log_ticks();
  } else {
    add_linear_ticks(low_, high_);
  }
}

double Axis::place(double value) const {
  const long double scaled = kind_ == Kind::log ? std::log10(static_cast<long double>(value)) : value;
  return static_cast<double>((scaled - low_) / (high_ - low_));
}

void Axis::add_linear_ticks(long double low, long double high) {
  long double step = round_step((high - low) / kIntervals);
  if (kind_ == Kind::counter) {
    step = std::max(step, 1.0L);
  }
  const long double largest = std::max(std::abs(low), std::abs(high));
  // Ticks are counted in whole steps, so that the last one has no accumulated error.
  const long double first = std::ceil(low / step - kSlack);
  const int count = static_cast<int>(std::floor(high / step + kSlack) - first) + 1;
  for (int i = 0; i < count; ++i) {
    const long double value = (first + i) * step;
    const long double at = kind_ == Kind::log ? std::log10(value) : value;
    ticks_.push_back({static_cast<double>((at - low_) / (high_ - low_)), label_of(value, step, largest)});
  }
}

void Axis::add_log_ticks() {
  const long double decades = high_ - low_;
  if (decades < 1.2L) {  // too few powers of ten: use round values between them
    add_linear_ticks(std::pow(10.0L, low_), std::pow(10.0L, high_));
    return;
  }
  const bool fine = decades < 3.5L;
  const int stride = fine ? 1 : std::max(1, static_cast<int>(std::ceil(decades / 8)));
  const int first = static_cast<int>(std::floor(low_));
  for (int exponent = first - first % stride - stride; exponent <= high_; exponent += stride) {
    for (const int mantissa : {1, 2, 5}) {
      const long double at = exponent + std::log10(static_cast<long double>(mantissa));
      if (at < low_ || at > high_ || (mantissa > 1 && !fine)) {
        continue;
      }
      const bool plain = exponent >= -4 && exponent < 6;
      const long double value = mantissa * std::pow(10.0L, exponent);
      ticks_.push_back({static_cast<double>((at - low_) / decades),
                        plain ? fmt::format("{:.{}f}", value, std::max(0, -exponent)) : scientific(value, 0)});
    }
  }
}

}  // namespace tandem::inline v0::telemetry

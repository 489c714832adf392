#include "picture.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include <tandem/autograd/ops.h>

namespace example {

using namespace tandem;

namespace {

constexpr double kTop = 70;

class Picture {
 public:
  Picture() {
    svg_ = R"(<svg xmlns="http://www.w3.org/2000/svg" width="1010" height="400" viewBox="0 0 1010 400">
<style>text { font-family: Helvetica, Arial, sans-serif; font-size: 12px; fill: #333333 }
.title { font-size: 15px; font-weight: bold }</style>
<rect width="100%" height="100%" fill="#ffffff"/>
)";
  }
  void square(double x, double y, double side, const std::string& colour) {
    fmt::format_to(std::back_inserter(svg_),
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x, y,
                   side + 0.3, side + 0.3, colour);
  }
  void text(double x, double y, const std::string& text, const char* attributes = "") {
    fmt::format_to(std::back_inserter(svg_), "<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes, text);
  }
  std::string take() { return svg_ + "</svg>\n"; }

 private:
  std::string svg_;
};

// From white at 0 to `colour` at 1.
std::string shade(double value, int red, int green, int blue) {
  const double part = std::clamp(value, 0.0, 1.0);
  const auto mix = [&](int full) { return static_cast<int>(std::lround(255 + (full - 255) * part)); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(red), mix(green), mix(blue));
}

void draw_windows(Picture& picture, const Tensor& windows) {
  picture.text(20, 40, "First layer: blue adds, orange takes away", "class=\"title\"");
  const std::int64_t size = windows.size(-1);
  const std::vector<double> values = windows.to_vector<double>();
  double largest = 0;
  for (const double value : values) {
    largest = std::max(largest, std::abs(value));
  }
  const double cell = 90.0 / static_cast<double>(size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t window = at / (size * size);
    const double x = 20 + 105 * static_cast<double>(window % 3) + cell * static_cast<double>(at % size);
    const double y = kTop + 105 * static_cast<double>(window / 3) + cell * static_cast<double>(at / size % size);
    const double value = values[i] / largest;
    picture.square(x, y, cell, value > 0 ? shade(value, 0, 114, 178) : shade(-value, 213, 94, 0));
  }
}

void draw_confusion(Picture& picture, const std::vector<std::int64_t>& labels, const std::vector<std::int64_t>& guesses,
                    std::size_t classes) {
  picture.text(370, 40, "Rows: the digit. Columns: the guess", "class=\"title\"");
  std::vector<int> counts(classes * classes);
  std::vector<int> totals(classes);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto digit = static_cast<std::size_t>(labels[i]);
    ++counts[digit * classes + static_cast<std::size_t>(guesses[i])];
    ++totals[digit];
  }
  const double cell = 270.0 / static_cast<double>(classes);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t digit = i / classes;
    const double x = 390 + cell * static_cast<double>(i % classes);
    const double y = kTop + cell * static_cast<double>(digit);
    const double share = totals[digit] > 0 ? static_cast<double>(counts[i]) / totals[digit] : 0;
    const bool right = i % classes == digit;
    picture.square(x, y, cell - 1, right ? shade(share, 0, 158, 115) : shade(10 * share, 213, 94, 0));
    if (counts[i] > 0) {
      picture.text(x + cell / 2, y + cell / 2 + 4, fmt::format("{}", counts[i]), "text-anchor=\"middle\"");
    }
    if (i % classes == 0) {
      picture.text(380, y + cell / 2 + 4, fmt::format("{}", digit), "text-anchor=\"end\"");
      picture.text(390 + cell * (static_cast<double>(digit) + 0.5), kTop - 6, fmt::format("{}", digit),
                   "text-anchor=\"middle\"");
    }
  }
}

void draw_worst(Picture& picture, const Tensor& images, const std::vector<std::int64_t>& labels,
                const std::vector<std::int64_t>& guesses, const Tensor& probabilities) {
  picture.text(700, 40, "The ten least certain of their digit", "class=\"title\"");
  std::vector<double> certain;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    certain.push_back(probabilities[static_cast<std::int64_t>(i)][labels[i]].item<double>());
  }
  std::vector<std::size_t> order(labels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t shown = std::min<std::size_t>(10, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
                    [&](std::size_t a, std::size_t b) { return certain[a] < certain[b]; });
  for (std::size_t i = 0; i < shown; ++i) {
    const double left = 700 + 75 * static_cast<double>(i % 4);
    const double top = kTop + 105 * static_cast<double>(i / 4);
    const Tensor image = images[static_cast<std::int64_t>(order[i])];
    const std::vector<double> pixels = image.to_vector<double>();
    const auto [low, high] = std::minmax_element(pixels.begin(), pixels.end());
    const auto side = static_cast<std::size_t>(image.size(-1));
    const double cell = 65.0 / static_cast<double>(side);
    picture.square(left, top, 65, "#f0f0f0");
    for (std::size_t p = 0; p < pixels.size(); ++p) {
      const double ink = (pixels[p] - *low) / std::max(*high - *low, 1e-9);
      if (ink > 0.1) {
        picture.square(left + cell * static_cast<double>(p % side), top + cell * static_cast<double>(p / side), cell,
                       shade(ink, 0, 0, 0));
      }
    }
    picture.text(left, top + 80, fmt::format("{}, guess {}", labels[order[i]], guesses[order[i]]));
  }
}

}  // namespace

std::string picture(const Tensor& windows, const Tensor& images, const Tensor& labels, const Tensor& probabilities) {
  const std::vector<std::int64_t> digits = labels.to_vector<std::int64_t>();
  const std::vector<std::int64_t> guesses = probabilities.argmax(1).to_vector<std::int64_t>();
  Picture picture;
  draw_windows(picture, windows);
  draw_confusion(picture, digits, guesses, static_cast<std::size_t>(probabilities.size(1)));
  draw_worst(picture, images, digits, guesses, probabilities);
  return picture.take();
}

}  // namespace example

#include "picture.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

namespace example {

using namespace tandem;

namespace {

using Classes = std::vector<std::int64_t>;

void draw_confusion(Picture& picture, double left, const Classes& labels, const Classes& guesses,
                    const std::vector<std::string>& classes) {
  picture.title(left, "Rows: the class. Columns: the guess");
  const std::size_t count = classes.size();
  std::vector<int> counts(count * count);
  std::vector<int> totals(count);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto label = static_cast<std::size_t>(labels[i]);
    ++counts[label * count + static_cast<std::size_t>(guesses[i])];
    ++totals[label];
  }
  const double first = left + 45;
  const double cell = 270.0 / static_cast<double>(count);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t label = i / count;
    const double x = first + cell * static_cast<double>(i % count);
    const double y = Picture::kTop + cell * static_cast<double>(label);
    const double share = totals[label] > 0 ? static_cast<double>(counts[i]) / totals[label] : 0;
    const bool right = i % count == label;
    picture.square(x, y, cell - 1, right ? shade(share, 0, 158, 115) : shade(10 * share, 213, 94, 0));
    if (counts[i] > 0) {
      picture.text(x + cell / 2, y + cell / 2 + 4, fmt::format("{}", counts[i]), "text-anchor=\"middle\"");
    }
    if (i % count == 0) {
      picture.text(first - 10, y + cell / 2 + 4, classes[label], "text-anchor=\"end\"");
      picture.text(first + cell * (static_cast<double>(label) + 0.5), Picture::kTop - 6, classes[label],
                   "text-anchor=\"middle\"");
    }
  }
}

void draw_worst(Picture& picture, double left, const Tensor& images, const Classes& labels, const Classes& guesses,
                const Tensor& probabilities, const std::vector<std::string>& classes) {
  picture.title(left, "The ten least certain of their class");
  std::vector<double> certain;
  certain.reserve(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    certain.push_back(probabilities[static_cast<std::int64_t>(i)][labels[i]].item<double>());
  }
  std::vector<std::size_t> order(labels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t shown = std::min<std::size_t>(10, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
                    [&](std::size_t a, std::size_t b) { return certain[a] < certain[b]; });
  const auto name = [&](std::int64_t index) { return classes[static_cast<std::size_t>(index)]; };
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t row = i / 4;
    const double x = left + 75 * static_cast<double>(i % 4);
    const double y = Picture::kTop + 105 * static_cast<double>(row);
    const Tensor image = images[static_cast<std::int64_t>(order[i])].to(DType::f32);
    picture.image(x, y, 65, image, image.min().item(), image.max().item());
    picture.text(x, y + 78, name(labels[order[i]]));
    picture.text(x, y + 91, "guess " + name(guesses[order[i]]));
  }
}

}  // namespace

Picture::Picture(int width, int height)
    : svg_(fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}">
<style>text {{ font-family: Helvetica, Arial, sans-serif; font-size: 12px; fill: #333333 }}
.title {{ font-size: 15px; font-weight: bold }}</style>
<rect width="100%" height="100%" fill="#ffffff"/>
)",
                       width, height)) {}

void Picture::title(double x, const std::string& text) { this->text(x, 40, text, "class=\"title\""); }

void Picture::text(double x, double y, const std::string& text, const char* attributes) {
  fmt::format_to(std::back_inserter(svg_), "<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes, text);
}

void Picture::square(double x, double y, double side, const std::string& colour) {
  fmt::format_to(std::back_inserter(svg_),
                 "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x, y, side + 0.3,
                 side + 0.3, colour);
}

void Picture::image(double x, double y, double side, const Tensor& image, double low, double high) {
  const std::vector<double> values = image.to_vector<double>();
  const auto part = [&](std::size_t at) {
    return std::clamp((values[at] - low) / std::max(high - low, 1e-9), 0.0, 1.0);
  };
  const auto byte = [&](std::size_t at) { return std::lround(255 * part(at)); };
  const bool is_grey = image.size(0) == 1;
  const auto pixels = static_cast<std::size_t>(image.size(1));
  const std::size_t plane = pixels * pixels;
  const double cell = side / static_cast<double>(pixels);
  square(x, y, side, "#f0f0f0");
  for (std::size_t p = 0; p < plane; ++p) {
    if (!is_grey || part(p) > 0.1) {
      const std::size_t row = p / pixels;
      square(x + cell * static_cast<double>(p % pixels), y + cell * static_cast<double>(row), cell,
             is_grey ? shade(part(p), 0, 0, 0)
                     : fmt::format("#{:02x}{:02x}{:02x}", byte(p), byte(p + plane), byte(p + 2 * plane)));
    }
  }
}

void Picture::points(double x, double y, double side, const Tensor& points, double reach) {
  square(x, y, side, "#f0f0f0");
  const std::vector<double> at = points.to_vector<double>();
  for (std::size_t i = 0; i < at.size(); i += 2) {
    if (std::abs(at[i]) < reach && std::abs(at[i + 1]) < reach) {
      square(x + side * (1 + at[i] / reach) / 2, y + side * (1 - at[i + 1] / reach) / 2, 1.5, "#2060a0");
    }
  }
}

std::string shade(double value, int red, int green, int blue) {
  const double part = std::clamp(value, 0.0, 1.0);
  const auto mix = [&](int full) { return static_cast<int>(std::lround(255 + (full - 255) * part)); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(red), mix(green), mix(blue));
}

void draw_results(Picture& picture, double left, const Tensor& images, const Tensor& labels,
                  const Tensor& probabilities, const std::vector<std::string>& classes) {
  const Classes truths = labels.to_vector<std::int64_t>();
  const Classes guesses = probabilities.argmax(1).to_vector<std::int64_t>();
  draw_confusion(picture, left, truths, guesses, classes);
  draw_worst(picture, left + 355, images, truths, guesses, probabilities, classes);
}

}  // namespace example

#include <tandem/telemetry/text_screen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/telemetry/metric_fields.h>
#include <tandem/telemetry/run_data.h>
#include <tandem/telemetry/text.h>

namespace tandem::inline v0::telemetry {

namespace {

constexpr int kPanelColumns = 40;
constexpr int kPanelRows = 8;
constexpr int kPanelGap = 2;

// A plot of dots: each cell of a line has 2 by 4 of them, as Braille patterns have.
class Plot {
 public:
  Plot(int width, int height) : width_(width), height_(height), dots_(static_cast<std::size_t>(8 * width * height)) {}

  int across() const { return 2 * width_; }
  int down() const { return 4 * height_; }
  void set(int x, int y) {
    if (x >= 0 && x < across() && y >= 0 && y < down()) {
      dots_[place(x, y)] = true;
    }
  }
  // A line between two dots.
  void connect(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      set(x0 + static_cast<int>(std::lround(static_cast<double>(x1 - x0) * i / steps)),
          y0 + static_cast<int>(std::lround(static_cast<double>(y1 - y0) * i / steps)));
    }
  }
  std::string row(int number, bool has_unicode) const {
    // The bits of a Braille pattern, by row and column of its dots.
    constexpr int kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    std::string text;
    for (int cell = 0; cell < width_; ++cell) {
      int pattern = 0;
      for (int y = 0; y < 4; ++y) {
        for (int x = 0; x < 2; ++x) {
          pattern |= dots_[place(2 * cell + x, 4 * number + y)] ? kBits[y][x] : 0;
        }
      }
      if (pattern == 0) {
        text += ' ';
      } else if (!has_unicode) {
        text += '*';
      } else {  // U+2800 and on, as UTF-8
        text += {'\xe2', static_cast<char>(0xa0 + (pattern >> 6)), static_cast<char>(0x80 + (pattern & 0x3f))};
      }
    }
    return text;
  }

 private:
  std::size_t place(int x, int y) const { return static_cast<std::size_t>(y * across() + x); }
  int width_;
  int height_;
  std::vector<bool> dots_;
};

// The smallest and the largest of the finite values.
std::optional<std::pair<double, double>> range_of(const std::vector<double>& values) {
  std::optional<std::pair<double, double>> range;
  for (const double value : values) {
    if (std::isfinite(value)) {
      range =
          range ? std::pair(std::min(range->first, value), std::max(range->second, value)) : std::pair(value, value);
    }
  }
  return range;
}

int place_of(double value, const std::pair<double, double>& range, int dots) {
  const double span = range.second - range.first;
  const double share = span > 0 ? (value - range.first) / span : 0.5;
  return static_cast<int>(std::lround(share * (dots - 1)));
}

// Cut or filled up to a width.
std::string fitted(std::string_view text, int width) {
  const std::string clean = clean_text(text);
  const std::string_view part = fit_columns(clean, width);
  return std::string(part) + std::string(static_cast<std::size_t>(std::max(0, width - columns(part))), ' ');
}

// A title and a plot.
std::vector<std::string> panel_of(const Curve& curve, const std::string& metric, bool has_unicode) {
  std::vector<std::string> lines;
  const auto xs = range_of(curve.x);
  const auto ys = range_of(curve.y);
  Plot plot(kPanelColumns, kPanelRows - 1);
  std::pair<int, int> last;
  bool is_connected = false;
  for (std::size_t i = 0; xs && ys && i < curve.x.size(); ++i) {
    if (!std::isfinite(curve.x[i]) || !std::isfinite(curve.y[i])) {
      is_connected = false;
      continue;
    }
    const int x = place_of(curve.x[i], *xs, plot.across());
    const int y = plot.down() - 1 - place_of(curve.y[i], *ys, plot.down());
    last = is_connected ? last : std::pair(x, y);
    plot.connect(last.first, last.second, x, y);
    last = {x, y};
    is_connected = true;
  }
  lines.push_back(fitted(
      ys ? fmt::format("{}  {:.4g} .. {:.4g}", metric, ys->first, ys->second) : fmt::format("{}  no numbers", metric),
      kPanelColumns));
  for (int row = 0; row < kPanelRows - 1; ++row) {
    lines.push_back(plot.row(row, has_unicode));
  }
  return lines;
}

std::string age_of(const std::string& path) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  if (error) {
    return "no line yet";
  }
  const auto age =
      std::chrono::duration_cast<std::chrono::seconds>(std::filesystem::file_time_type::clock::now() - written);
  const std::int64_t seconds = std::max<std::int64_t>(age.count(), 0);
  return seconds < 120    ? fmt::format("last line {} s ago", seconds)
         : seconds < 7200 ? fmt::format("last line {} min ago", seconds / 60)
                          : fmt::format("last line {} h ago", seconds / 3600);
}

// The fields of config.json that say where a run computes and how.
std::string options_of(const std::string& path) {
  std::string text;
  if (!is_file(path)) {
    return text;
  }
  for (const Field& field : read_json(path)) {
    static constexpr std::string_view kShown[] = {"program", "parallel",  "ranks",      "devices", "device",
                                                  "shard",   "precision", "batch_size", "lr",      "optimizer"};
    const std::string value = text_of(field.value);
    if (std::ranges::find(kShown, std::string_view(field.name)) != std::end(kShown) && value != "\"\"") {
      text += fmt::format("{}{} {}", text.empty() ? "" : "   ", field.name, value);
    }
  }
  std::erase(text, '"');
  return text;
}

// The line of a diagnosis that gives advice.
std::string advice_of(const std::string& path) {
  const std::string text = core::read_small_file(path).value_or("");
  for (const std::string_view begin : {"The largest part", "Nearly all of it"}) {
    if (const std::size_t at = text.find(begin); at != std::string::npos) {
      return text.substr(at, text.find('\n', at) - at);
    }
  }
  return "";
}

}  // namespace

std::string text_screen(const std::string& folder, const ScreenSize& size) {
  std::error_code error;
  check<IoError>(std::filesystem::is_directory(folder, error), "'{}': expected the folder of a run", folder);
  const RunData run(folder);
  const std::string axis = run.axis();
  std::vector<std::string> lines;
  const auto add = [&](const std::string& text) {
    std::string line = fitted(text, size.columns);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  };
  add(fmt::format("{}   {}", run.name, age_of(folder + "/metrics.jsonl")));
  if (!run.metrics.empty()) {
    std::string numbers;
    for (const Field& field : run.metrics.back()) {
      if (const std::optional<double> number = number_in(field.value); number) {
        numbers += fmt::format("{}{} {:.6g}", numbers.empty() ? "" : "   ", field.name, *number);
      }
    }
    add(numbers);
  }
  if (const std::string options = options_of(folder + "/config.json"); !options.empty()) {
    add(options);
  }
  const std::string advice = advice_of(folder + "/diagnosis.txt");
  const int left = size.rows - static_cast<int>(lines.size()) - (advice.empty() ? 0 : 1);
  const int beside = (size.columns + kPanelGap) / (kPanelColumns + kPanelGap);
  const std::vector<std::string> metrics = metrics_of({run}, axis);
  const auto shown = std::min(metrics.size(), static_cast<std::size_t>(std::max(0, left / kPanelRows) * beside));
  const auto step = static_cast<std::size_t>(std::max(beside, 1));
  for (std::size_t first = 0; first < shown; first += step) {
    std::vector<std::string> rows(kPanelRows);
    for (std::size_t m = first; m < std::min(shown, first + step); ++m) {
      const std::vector<std::string> panel = panel_of(run.curve(metrics[m], axis), metrics[m], size.has_unicode);
      for (std::size_t row = 0; row < rows.size(); ++row) {
        rows[row] += (m > first ? std::string(kPanelGap, ' ') : std::string()) + panel[row];
      }
    }
    for (std::string& row : rows) {
      row.erase(row.find_last_not_of(' ') + 1);
      lines.push_back(std::move(row));
    }
  }
  if (!advice.empty()) {
    add(advice);
  }
  std::string screen;
  for (std::size_t i = 0; i < std::min(lines.size(), static_cast<std::size_t>(std::max(0, size.rows))); ++i) {
    screen += lines[i] + "\n";
  }
  return screen;
}

}  // namespace tandem::inline v0::telemetry

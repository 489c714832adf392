#include <tandem/telemetry/progress.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/telemetry/text.h>

namespace tandem::inline v0::telemetry {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRedrawSeconds = 0.1;
constexpr double kNewestWeight = 0.3;
constexpr int kMaxBar = 24;
constexpr int kMinBar = 5;
constexpr int kDefaultColumns = 80;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (std::string text(environment(name)); !text.empty()) {
      std::erase(text, '-');
      std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
      return text.find("utf8") != std::string::npos;
    }
  }
  return false;
}

// Examples: "0:03", "12:45", "3:00:00".
std::string clock_text(double duration) {
  const auto total = static_cast<std::int64_t>(std::min(std::round(duration), 1e9));
  const std::int64_t minutes = total / 60 % 60;
  return total < 3600 ? fmt::format("{}:{:02}", minutes, total % 60)
                      : fmt::format("{}:{:02}:{:02}", total / 3600, minutes, total % 60);
}

// Examples: "0.85 s", "12:45".
std::string duration_text(double duration) {
  return duration < 59.95 ? fmt::format("{:.3g} s", duration) : clock_text(duration);
}

std::string bar_text(int width, double part, bool utf8, bool colour) {
  const int full = static_cast<int>(std::clamp(part, 0.0, 1.0) * width);
  std::string bar = colour ? "\x1b[36m" : "";
  for (int i = 0; i < width; ++i) {
    bar += i < full ? (utf8 ? "━" : "=") : (utf8 ? "─" : "-");
  }
  return bar + (colour ? "\x1b[0m" : "");
}

// A value to show. Numbers are formatted when drawn, not when set.
struct Shown {
  std::string name = {};
  double number = 0;
  std::string text = {};
  bool is_text = false;
};

}  // namespace

struct Progress::Impl {
  ProgressOptions options;
  bool terminal;
  bool colour;
  bool utf8;
  Clock::duration interval;

  std::int64_t epoch = 0;
  std::int64_t epochs = 0;
  std::int64_t done = 0;
  std::vector<Shown> values;
  int width = 0;         // terminal width at the last redraw, without the last column
  int widest = 0;        // widest text drawn at that width, without the bar
  bool pending = false;  // some change has not been shown on a complete line yet

  Clock::time_point epoch_start = Clock::now();
  Clock::time_point last_advance = epoch_start;
  Clock::time_point next_draw;
  Clock::time_point sample_time = epoch_start;
  std::int64_t sample_done = 0;
  double rate = 0;  // units per second, smoothed; 0: not known yet

  explicit Impl(ProgressOptions given);
  void sample(Clock::time_point now);
  Shown& value(std::string_view name);
  std::string heading() const;
  std::string value_text() const;
  std::vector<std::string> parts() const;
  std::string fitted_line();
  void draw(Clock::time_point now);
  void write_line(std::string_view line);
};

Progress::Impl::Impl(ProgressOptions given) : options(std::move(given)) {
  options.label = clean_text(options.label);
  options.unit = clean_text(options.unit);
  const std::string_view term = environment("TERM");
  terminal = ::isatty(options.fd) == 1 && !term.empty() && term != "dumb";
  colour = environment("NO_COLOR").empty();
  utf8 = utf8_locale();
  const double least = terminal ? kRedrawSeconds : std::min(options.line_seconds, 1e9);
  interval = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(least));
  next_draw = epoch_start + interval;
}

Shown& Progress::Impl::value(std::string_view name) {
  const auto found = std::ranges::find(values, name, &Shown::name);
  return found != values.end() ? *found : values.emplace_back(Shown{.name = std::string(name)});
}

void Progress::Impl::sample(Clock::time_point now) {
  const double elapsed = seconds(now - sample_time);
  if (elapsed <= 0 || done == sample_done) {
    return;
  }
  const double newest = static_cast<double>(done - sample_done) / elapsed;
  rate = rate == 0 ? newest : kNewestWeight * newest + (1 - kNewestWeight) * rate;
  sample_time = now;
  sample_done = done;
}

std::string Progress::Impl::heading() const {
  std::string text = options.label;
  if (epoch > 0) {
    text += text.empty() ? "" : "  ";
    const std::string last = epochs > 0 ? fmt::format("{}", epochs) : std::string();
    text += fmt::format("epoch {:>{}}{}{}", epoch, last.size(), last.empty() ? "" : "/", last);
  }
  return text;
}

std::string Progress::Impl::value_text() const {
  std::string text = {};
  for (const Shown& shown : values) {
    text += text.empty() ? "" : "  ";
    text += shown.is_text ? fmt::format("{} {}", shown.name, shown.text)
                          : fmt::format("{} {:.4g}", shown.name, core::printable(shown.number));
  }
  return clean_text(text);
}

std::vector<std::string> Progress::Impl::parts() const {
  std::vector<std::string> all{heading()};
  if (options.total > 0) {
    all.push_back(fmt::format("{:>3}%", std::clamp<std::int64_t>(done * 100 / options.total, 0, 100)));
  } else {
    all.push_back(fmt::format("{} {}", short_number(static_cast<double>(done)), options.unit));
  }
  all.push_back(value_text());
  if (rate > 0) {
    all.push_back(fmt::format("{} {}/s", short_number(rate), options.unit));
    if (options.total > 0) {
      const std::int64_t left =
          options.total - std::min(done, options.total) + std::max<std::int64_t>(epochs - epoch, 0) * options.total;
      all.push_back("eta " + clock_text(static_cast<double>(left) / rate));
    }
  }
  std::erase(all, std::string());
  return all;
}

// The parts that fit, from the left, with a bar in the remaining room. The bar leaves room for the widest text so far;
// otherwise its length would change with every digit.
std::string Progress::Impl::fitted_line() {
  winsize size{};
  const bool known = ::ioctl(options.fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  // The last column stays free, because writing to it makes some terminals wrap at once.
  if (const int now = (known ? size.ws_col : kDefaultColumns) - 1; now != width) {
    width = now;
    widest = 0;
  }
  std::vector<std::string> shown = parts();
  if (columns(shown[0]) > width) {
    return std::string(fit_columns(shown[0], width));
  }
  int used = columns(shown[0]);
  std::size_t kept = 1;
  while (kept < shown.size() && used + 2 + columns(shown[kept]) <= width) {
    used += 2 + columns(shown[kept++]);
  }
  shown.resize(kept);
  widest = std::max(widest, used);
  if (const int bar = std::min(width - widest - 2, kMaxBar); options.total > 0 && bar >= kMinBar) {
    const double part = static_cast<double>(done) / static_cast<double>(options.total);
    shown.insert(shown.begin() + (heading().empty() ? 0 : 1), bar_text(bar, part, utf8, colour));
  }
  return fmt::format("{}", fmt::join(shown, "  "));
}

void Progress::Impl::draw(Clock::time_point now) {
  sample(now);
  next_draw = now + interval;
  if (terminal) {
    core::write_all(options.fd, "\r" + fitted_line() + "\x1b[K");
  } else {
    write_line(fmt::format("{}", fmt::join(parts(), "  ")));
  }
}

void Progress::Impl::write_line(std::string_view line) {
  core::write_all(options.fd, fmt::format("{}{}\n", terminal ? "\r\x1b[K" : "", line));
  pending = false;
}

Progress::Progress(ProgressOptions options) {
  check<ConfigError>(options.total >= 0 && options.fd >= 0 && options.line_seconds >= 0,
                     "Progress: expected total, fd and line_seconds of at least 0, got {}, {} and {}", options.total,
                     options.fd, options.line_seconds);
  if (options.enabled) {
    impl_ = std::make_unique<Impl>(std::move(options));
  }
}

Progress::~Progress() {
  if (impl_ == nullptr || !impl_->pending) {
    return;
  }
  try {
    impl_->draw(Clock::now());
    if (impl_->terminal) {
      core::write_all(impl_->options.fd, "\n");
    }
  } catch (...) {  // out of memory: nothing can be reported any more
  }
}

void Progress::start_epoch(std::int64_t epoch, std::int64_t epochs) {
  if (impl_ == nullptr) {
    return;
  }
  impl_->epoch = epoch;
  impl_->epochs = epochs;
  impl_->done = 0;
  impl_->sample_done = 0;
  impl_->epoch_start = impl_->last_advance = impl_->sample_time = Clock::now();
}

void Progress::advance(std::int64_t units) {
  if (impl_ == nullptr) {
    return;
  }
  impl_->done += units;
  impl_->pending = true;
  impl_->last_advance = Clock::now();
  if (impl_->last_advance >= impl_->next_draw) {
    impl_->draw(impl_->last_advance);
  }
}

void Progress::set(std::string_view name, double value) {
  if (impl_ != nullptr) {
    Shown& shown = impl_->value(name);
    shown.number = value;
    shown.is_text = false;
  }
}

void Progress::set(std::string_view name, std::string_view value) {
  if (impl_ != nullptr) {
    Shown& shown = impl_->value(name);
    shown.text = value;
    shown.is_text = true;
  }
}

void Progress::end_epoch(std::string_view summary) {
  if (impl_ == nullptr) {
    return;
  }
  Impl& impl = *impl_;
  const Clock::time_point now = Clock::now();
  impl.sample(impl.last_advance);  // the time after that, often an evaluation, is not part of the rate
  impl.next_draw = now + impl.interval;

  std::vector<std::string> parts{impl.heading(), summary.empty() ? impl.value_text() : clean_text(summary)};
  if (const double busy = seconds(impl.last_advance - impl.epoch_start); busy > 0 && impl.done > 0) {
    parts.push_back(fmt::format("{} {}/s", short_number(static_cast<double>(impl.done) / busy), impl.options.unit));
  }
  parts.push_back(duration_text(seconds(now - impl.epoch_start)));
  std::erase(parts, std::string());
  impl.write_line(fmt::format("{}", fmt::join(parts, "  ")));
}

}  // namespace tandem::inline v0::telemetry

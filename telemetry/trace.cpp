#include <tandem/telemetry/trace.h>

#include <atomic>
#include <cstddef>
#include <iterator>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/core/gpu_spans.h>
#include <tandem/core/span.h>

// The format: "Trace Event Format" (Chromium), of which Perfetto reads complete events (X), flows (s, f) and the names
// of processes and threads (M).

namespace tandem::inline v0::telemetry {

namespace {

using core::Span;

double to_us(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::micro>(time).count(); }

std::string json_text(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The latest spans of one thread.
struct Track {
  std::string purpose;
  std::vector<Span> spans = {};
  std::size_t next = 0;  // the oldest span, where there are as many as are kept
};

}  // namespace

struct Trace::Impl final : core::SpanSink {
  explicit Impl(std::size_t most) : most_(most), gpus_(core::gpu_phases_of_this_rank()) {
    if (gpus_ != nullptr) {
      core::compare_gpu_clocks(*gpus_);
      first_on_gpu_ = core::next_gpu_phase(*gpus_);
    }
    open();
  }
  ~Impl() override { close(); }

  void stop() noexcept {
    close();
    if (gpus_ != nullptr && !end_on_gpu_) {
      end_on_gpu_ = core::next_gpu_phase(*gpus_);
    }
  }
  std::int64_t dropped() const noexcept { return dropped_; }

  std::string events(const TracedRank& of) {
    add_gpu_phases();
    std::string text = fmt::format(
        R"({{"ph":"M","name":"process_name","pid":{0},"args":{{"name":{1}}}}},
{{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})",
        of.rank,
        json_text(of.host.empty() ? fmt::format("rank {}", of.rank) : fmt::format("rank {} on {}", of.rank, of.host)));
    for (const auto& [number, track] : tracks_) {
      text += fmt::format(
          R"(,
{{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})",
          of.rank, number, json_text(track.purpose));
      for (const Span& span : track.spans) {
        add(text, span, of, number);
      }
    }
    return text;
  }

 private:
  // Each GPU has a track of its own, after those of threads. Perfetto's numbers of tracks have 32 bits.
  void add_gpu_phases() {
    constexpr std::uint64_t kFirstGpu = std::uint64_t{1} << 30U;
    if (gpus_ == nullptr) {
      return;
    }
    for (const core::GpuPhase& phase : core::gpu_phases_between(*gpus_, first_on_gpu_, *end_on_gpu_)) {
      const std::uint64_t number = kFirstGpu + static_cast<std::uint64_t>(phase.gpu);
      keep({.name = to_string(phase.phase), .began = phase.began, .ended = phase.ended}, number,
           fmt::format("cuda:{}", phase.gpu));
    }
    gpus_ = nullptr;  // they are here now
  }

  // One call at a time, and none after close().
  void take(const Span& span, const ThreadName& thread) noexcept override {
    try {
      Span kept = span;
      const auto known = details_.find(span.detail);
      kept.detail = known != details_.end() ? *known : *details_.emplace(span.detail).first;
      keep(kept, thread.number, thread.purpose);
    } catch (const std::bad_alloc&) {
      ++dropped_;
    }
  }

  void keep(const Span& span, std::uint64_t number, std::string_view purpose) {
    auto known = tracks_.find(number);
    if (known == tracks_.end()) {
      known = tracks_.emplace(number, Track{std::string(purpose)}).first;
    }
    Track& track = known->second;
    if (track.spans.size() < most_) {
      track.spans.push_back(span);
    } else {
      track.spans[track.next] = span;
      track.next = (track.next + 1) % most_;
      ++dropped_;
    }
  }

  static void add(std::string& text, const Span& span, const TracedRank& of, std::uint64_t thread) {
    const double at = to_us(span.began.time_since_epoch() + of.clock_offset);
    auto out = std::back_inserter(text);
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f})",
                   json_text(span.detail.empty() ? span.name : span.detail), span.name, of.rank, thread, at,
                   to_us(span.ended - span.began));
    if (span.bytes >= 0) {
      fmt::format_to(out, R"(,"args":{{"bytes":{}}})", span.bytes);
    }
    text += '}';
    if (span.side != Span::Flow::none) {
      // Numbers of flows are unique in a process, and ranks may be threads of one.
      fmt::format_to(out,
                     ",\n"
                     R"({{"ph":"{}","id":"{}.{}","name":"{}","cat":"flow","pid":{},"tid":{},"ts":{:.3f}}})",
                     span.side == Span::Flow::begins ? R"(s)" : R"(f","bp":"e)", of.rank, span.flow, "exchange",
                     of.rank, thread, at);
    }
  }

  std::size_t most_;
  std::shared_ptr<core::GpuPhases> gpus_;
  std::uint64_t first_on_gpu_ = 0;
  std::optional<std::uint64_t> end_on_gpu_;
  std::map<std::uint64_t, Track> tracks_;
  std::set<std::string, std::less<>> details_;
  std::atomic<std::int64_t> dropped_ = 0;
};

Trace::Trace(const TraceOptions& options) {
  check<ConfigError>(options.spans_per_thread >= 1, "Trace: spans_per_thread is {}, expected 1 or more",
                     options.spans_per_thread);
  impl_ = std::make_unique<Impl>(static_cast<std::size_t>(options.spans_per_thread));
}

Trace::~Trace() = default;

void Trace::stop() noexcept { impl_->stop(); }

std::int64_t Trace::dropped() const noexcept { return impl_->dropped(); }

void Trace::write(const std::string& path) { core::replace_file(path, {join({events({})})}); }

std::string Trace::events(const TracedRank& of) {
  stop();
  return impl_->events(of);
}

std::string Trace::join(const std::vector<std::string>& events) {
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n", fmt::join(events, ",\n"));
}

}  // namespace tandem::inline v0::telemetry

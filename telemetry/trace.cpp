#include <tandem/telemetry/trace.h>

#include <atomic>
#include <cstddef>
#include <iterator>
#include <map>
#include <new>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/core/gpu_spans.h>
#include <tandem/core/span.h>
#include <tandem/core/thread_state.h>

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
  explicit Impl(std::size_t most) : most_(most), rank_(core::thread_state().rank) {
    open();
    core::add_gpu_listener(core::GpuListener::of_phases);
  }
  ~Impl() override { stop(); }

  void stop() noexcept {
    if (!has_stopped_) {
      core::remove_gpu_listener(core::GpuListener::of_phases);
      has_stopped_ = true;
    }
    close();
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
  // Each GPU has a track of its own, after those of threads.
  void add_gpu_phases() {
    constexpr std::uint64_t kFirstGpu = std::uint64_t{1} << 32U;
    for (const core::GpuPhase& phase : core::take_gpu_phases(rank_)) {
      if (phase.began < opened_) {
        continue;  // of an earlier trace
      }
      const std::uint64_t number = kFirstGpu + static_cast<std::uint64_t>(phase.gpu);
      Track& track = tracks_.try_emplace(number, Track{fmt::format("cuda:{}", phase.gpu)}).first->second;
      track.spans.push_back({.name = phase.name, .began = phase.began, .ended = phase.ended});
    }
  }

  // One call at a time, and none after close().
  void take(const Span& span, const ThreadName& thread) noexcept override {
    try {
      Track& track = tracks_.try_emplace(thread.number, Track{thread.purpose}).first->second;
      Span kept = span;
      const auto known = details_.find(span.detail);
      kept.detail = known != details_.end() ? *known : *details_.emplace(span.detail).first;
      if (track.spans.size() < most_) {
        track.spans.push_back(kept);
      } else {
        track.spans[track.next] = kept;
        track.next = (track.next + 1) % most_;
        ++dropped_;
      }
    } catch (const std::bad_alloc&) {
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
  const parallel::RankContext* rank_;
  Span::Clock::time_point opened_ = Span::Clock::now();
  bool has_stopped_ = false;
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

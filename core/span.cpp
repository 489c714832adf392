#include <tandem/core/span.h>

#include <algorithm>
#include <new>
#include <utility>

#include <tandem/core/fork.h>
#include <tandem/core/peak_place.h>
#include <tandem/core/progress_page.h>
#include <tandem/core/span_thread.h>
#include <tandem/core/step_facts.h>
#include <tandem/core/step_times.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0 {

namespace core {

namespace {

using std::chrono::nanoseconds;

struct Sinks {
  ForkSafeMutex mutex;  // held while a sink takes a span
  std::vector<SpanSink*> all;
};

Sinks& sinks() {
  static auto* const list = new Sinks;  // outlives every thread
  return *list;
}

constinit std::atomic<int> open_sinks{0};
constinit std::atomic<std::uint64_t> threads{0};
constinit std::atomic<std::uint64_t> flows{0};

bool has_sinks() noexcept { return open_sinks.load(std::memory_order_relaxed) != 0; }

thread_local std::uint64_t thread_number = 0;
thread_local const char* thread_purpose = "training";

// Keeps the thread's spans alive; collectors may hold them longer than the thread exists.
struct ThisThread {
  std::shared_ptr<SpanThread> spans = std::make_shared<SpanThread>();
  ~ThisThread();
};
constinit thread_local SpanThread* this_thread = nullptr;  // null unless the thread has spans
ThisThread::~ThisThread() { this_thread = nullptr; }

SpanThread* thread_with_spans() noexcept {
  if (this_thread == nullptr && has_sinks()) {
    try {
      SpanThread::of_this_thread();
    } catch (const std::bad_alloc&) {  // the thread's spans are not recorded
    }
  }
  return this_thread;
}

}  // namespace

void SpanSink::open() {
  rank_ = thread_state().rank;
  const std::lock_guard lock(sinks().mutex);
  sinks().all.push_back(this);
  open_sinks.fetch_add(1, std::memory_order_relaxed);
  detail::span_listeners.fetch_add(1, std::memory_order_relaxed);
}

void SpanSink::close() noexcept {
  const std::lock_guard lock(sinks().mutex);
  if (std::erase(sinks().all, this) != 0) {
    open_sinks.fetch_sub(1, std::memory_order_relaxed);
    detail::span_listeners.fetch_sub(1, std::memory_order_relaxed);
  }
}

void set_thread_purpose(const char* purpose) noexcept { thread_purpose = purpose; }

std::uint64_t new_flow() noexcept { return flows.fetch_add(1, std::memory_order_relaxed) + 1; }

std::shared_ptr<SpanThread> SpanThread::of_this_thread() {
  thread_local ThisThread mine;
  this_thread = mine.spans.get();
  return mine.spans;
}

detail::OpenSpan SpanThread::begin(Phase phase, const void* by) noexcept {
  const bool is_evaluation = phase == Phase::forward && !thread_state().grad_enabled;
  const bool is_inside =
      phase == Phase::collective && (is_open(Phase::reduce) || is_open(Phase::pipeline));  // as a part of that phase
  const ModuleScope* const module = phase == Phase::forward ? thread_state().scope : nullptr;
  const bool is_module = phase == Phase::forward && (is_evaluation || is_open(phase));  // not a phase of its own
  const Span span{.name = is_evaluation ? "evaluation" : to_string(phase),
                  .detail = module == nullptr       ? ""
                            : *module->path != '\0' ? module->path
                                                    : module->type};
  if (is_module) {
    return begin(span);
  }
  if (is_inside || is_open(phase)) {
    return {};
  }
  if (phase == Phase::optimizer) {
    note_optimizer(by);
  }
  return push(span, phase);
}

detail::OpenSpan SpanThread::begin(const Span& span) noexcept {
  return has_sinks() ? push(span, std::nullopt) : detail::OpenSpan{};
}

detail::OpenSpan SpanThread::push(const Span& span, std::optional<Phase> phase) noexcept {
  if (depth_ == kMostOpen) {
    return {};
  }
  open_[depth_] = {span, phase, nanoseconds(0), ++begun_};
  if (gpu_listeners.load(std::memory_order_relaxed) != 0) {
    // In a replay the optimiser's phase is that of its host work; its kernels run with the others.
    const bool is_of_host = phase == Phase::optimizer && is_open(Phase::replay);
    open_[depth_].gpu = begin_on_gpu(span, is_of_host ? std::nullopt : phase);
  }
  open_[depth_].span.began = Clock::now();
  return {this, depth_++, begun_};
}

bool SpanThread::is_open(Phase phase) const noexcept {
  return std::any_of(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(depth_),
                     [&](const Open& open) { return open.phase == phase; });
}

// A new step begins when an optimiser steps for the second time.
void SpanThread::note_optimizer(const void* by) noexcept {
  const std::lock_guard lock(mutex);
  if (stepped_.empty() || stepped_.contains(by)) {
    stepped_.clear();
    said_facts().begin_update();
    std::ranges::for_each(collectors_, [](StepTimes* collector) { collector->begin_step(); });
  }
  try {
    stepped_.insert(by);
  } catch (const std::bad_alloc&) {  // one step too many is counted
  }
}

void SpanThread::end(const detail::OpenSpan& open) noexcept {
  if (open.depth >= depth_ || open_[open.depth].number != open.number) {
    return;
  }
  const Clock::time_point now = Clock::now();
  while (depth_ > open.depth) {
    Open& ended = open_[--depth_];
    const nanoseconds whole = now - ended.span.began;
    if (ended.gpu.phase != 0 || ended.gpu.is_range) {
      end_on_gpu(ended.gpu);
    }
    if (depth_ > 0) {
      open_[depth_ - 1].phases += ended.phase ? whole : ended.phases;
    }
    if (ended.phase) {
      const std::lock_guard lock(mutex);
      for (StepTimes* collector : collectors_) {
        collector->add(*ended.phase, whole - ended.phases, now);
      }
    }
    if (has_sinks()) {
      ended.span.ended = now;
      thread_number = thread_number != 0 ? thread_number : threads.fetch_add(1, std::memory_order_relaxed) + 1;
      const std::lock_guard lock(sinks().mutex);
      for (SpanSink* sink : sinks().all) {
        if (sink->rank_ == thread_state().rank) {
          sink->take(ended.span, {thread_number, thread_purpose});
        }
      }
    }
  }
}

void SpanThread::add(StepTimes& collector) {
  const std::lock_guard lock(mutex);
  collectors_.push_back(&collector);
  stepped_.clear();  // the next optimiser that steps begins the collector's first step
}

void SpanThread::remove(const StepTimes& collector) noexcept {
  const std::lock_guard lock(mutex);
  std::erase(collectors_, &collector);
}

SpanThread::Times SpanThread::open_times(Clock::time_point now) const noexcept {
  Times times{};
  Clock::time_point end = now;
  nanoseconds inner{0};  // in phases that have ended within spans that are none
  for (std::size_t i = depth_; i-- > 0;) {
    const Open& open = open_[i];
    inner += open.phases;
    if (open.phase) {
      times[static_cast<std::size_t>(*open.phase)] = end - open.span.began - inner;
      end = open.span.began;
      inner = nanoseconds(0);
    }
  }
  return times;
}

std::string SpanThread::place() const {
  for (std::size_t i = depth_; i-- > 0;) {
    const Span& span = open_[i].span;
    if (!span.detail.empty()) {
      const std::string_view joint = std::string_view(span.name).ends_with(" of") ? " " : " of ";
      return std::string(span.name).append(joint).append(span.detail);
    }
  }
  const char* const outermost = depth_ > 0 ? open_[0].span.name : "";
  return outermost != std::string_view("allocation") ? outermost : "";  // that is no place
}

std::string place_of_this_thread() { return this_thread != nullptr ? this_thread->place() : ""; }

}  // namespace core

std::atomic<int> detail::span_listeners{0};

detail::OpenSpan detail::begin_span(Phase phase, const void* by) noexcept {
  core::SpanThread* const thread = core::thread_with_spans();
  OpenSpan open = thread != nullptr ? thread->begin(phase, by) : OpenSpan{};
  if (core::ProgressPage* page = core::page_of_this_thread(); page != nullptr) {
    open.is_noted = true;
    open.outer = page->phase.load(std::memory_order_relaxed);
    page->phase.store(static_cast<std::int32_t>(phase), std::memory_order_relaxed);
  }
  return open;
}

detail::OpenSpan detail::begin_span(const core::Span& span) noexcept {
  core::SpanThread* const thread = core::thread_with_spans();
  return thread != nullptr ? thread->begin(span) : OpenSpan{};
}

void detail::end_span(const OpenSpan& open) noexcept {
  if (open.thread != nullptr && open.thread == core::this_thread) {
    open.thread->end(open);
  }
  if (core::ProgressPage* page = core::page_of_this_thread(); open.is_noted && page != nullptr) {
    page->phase.store(open.outer, std::memory_order_relaxed);
  }
}

const char* to_string(Phase phase) noexcept {
  constexpr const char* kNames[kPhases] = {"input",  "scatter",    "replicate", "forward", "gather",  "backward",
                                           "reduce", "collective", "optimizer", "replay",  "pipeline"};
  return kNames[static_cast<std::size_t>(phase)];
}

}  // namespace tandem::inline v0

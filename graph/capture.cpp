#include <tandem/graph/capture.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include <tandem/autograd/autocast.h>
#include <tandem/core/check.h>
#include <tandem/core/fork.h>
#include <tandem/core/span.h>
#include <tandem/core/step_facts.h>
#include <tandem/graph/replay.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::graph {

namespace {

constexpr int kMostRuns = 6;                             // runs within which two in a row must be equal
constexpr std::int64_t kSmall = std::int64_t{16} << 10;  // inputs of at most this size in bytes are not worth a launch
constexpr const char* kOther = "inputs of other sizes, types or devices, another mode, or other gradients present";
constexpr const char* kChanged =
    "a parameter was moved or frozen, a module or optimiser changed or gone, or a hook registered";

/// One way of calling the step, with its finished or unfinished recording.
struct Capture {
  // The conditions under which this capture applies.
  bool grad_enabled;
  Device device;
  Generator* generator;
  const core::Frame* frame;
  std::optional<DType> autocast;
  std::vector<Tensor> slots;
  std::vector<LeafState> leaves;
  std::vector<Flag> flags;
  std::uint64_t epoch = 0;  // step_epoch() at the last run; a change makes all of this unreliable

  Trace trace;  // the last run, until the step is captured
  int runs = 0;
  std::unique_ptr<Replay> replay;
  std::vector<Tensor> outputs;
  StepFacts facts{};  // said by wrappers in the step, whose code a replay does not run
  std::uint64_t last_used = 0;

  explicit Capture(std::span<const Tensor* const> inputs) {
    const core::ThreadState& state = core::thread_state();
    grad_enabled = state.grad_enabled;
    device = state.device;
    generator = state.generator;
    frame = state.frame;
    autocast = autocast_dtype();
    for (const Tensor* input : inputs) {
      slots.emplace_back(detail::empty_like(input->raw()));
    }
  }

  bool fits(std::span<const Tensor* const> inputs) const {
    const core::ThreadState& state = core::thread_state();
    if (grad_enabled != state.grad_enabled || !(device == state.device) || generator != state.generator ||
        frame != state.frame || autocast != autocast_dtype() || slots.size() != inputs.size()) {
      return false;
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const detail::View& slot = slots[i].raw();
      const detail::View& input = inputs[i]->raw();
      if (!(slot.sizes == input.sizes) || slot.dtype != input.dtype || !(slot.device() == input.device()) ||
          slot.memory_format() != input.memory_format()) {
        return false;
      }
    }
    return std::all_of(leaves.begin(), leaves.end(),
                       [](const LeafState& known) {
                         return known.any_before ||
                                (known.leaf->fresh() == known.fresh_before && !known.leaf->is_taken());
                       }) &&
           std::all_of(flags.begin(), flags.end(), [](const Flag& known) { return *known.flag == known.value; });
  }

  /// Returns null if the capture can be used, else the change since its last run.
  const char* stale() const {
    if (epoch != detail::step_epoch()) {
      return kChanged;
    }
    return replay ? replay->stale() : nullptr;
  }

  void copy_in(std::span<const Tensor* const> inputs) const {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const detail::View& to = slots[i].raw();
      const detail::View& from = inputs[i]->raw();
      if (to.data() == from.data()) {
        continue;
      }
      const auto bytes = to.numel() * static_cast<std::int64_t>(item_size(to.dtype));
      if (bytes <= kSmall && from.is_contiguous() && to.device().type == DeviceType::cpu) {
        std::memcpy(to.data(), from.data(), static_cast<std::size_t>(bytes));
      } else {
        detail::copy(to, from);
      }
      to.storage->bump_version();
    }
  }
};

void check_inputs(std::span<const Tensor* const> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check<ConfigError>(!inputs[i]->requires_grad(),
                       "captured step: input {} {} requires a gradient, but inputs are copied and no gradient flows "
                       "back; pass it with .detach(), or use it in the function without passing it",
                       i, inputs[i]->shape());
  }
}

}  // namespace

struct StepRunner::Impl {
  explicit Impl(const CaptureOptions& of) : options(of) {}

  CaptureOptions options;
  CaptureStats stats;
  std::vector<std::shared_ptr<Capture>> captures;
  Capture* last = nullptr;
  std::uint64_t calls = 0;
  std::uint64_t resets = 0;  // of a step that several threads call, at the last look

  void clear() noexcept {
    captures.clear();
    last = nullptr;
  }

  void forget(const Capture* capture) {
    last = last == capture ? nullptr : last;
    std::erase_if(captures, [&](const auto& held) { return held.get() == capture; });
  }

  Capture& find(std::span<const Tensor* const> inputs) {
    if (last != nullptr && last->stale() == nullptr && last->fits(inputs)) {
      return *last;
    }
    last = nullptr;
    const char* reason = calls == 0 ? "first call" : kOther;
    std::erase_if(captures, [&](const auto& capture) {
      const char* changed = capture->stale();
      reason = changed != nullptr ? changed : reason;
      return changed != nullptr;
    });
    const auto found =
        std::find_if(captures.begin(), captures.end(), [&](const auto& capture) { return capture->fits(inputs); });
    if (found != captures.end()) {
      return *(last = found->get());
    }
    stats.last_reason = reason;
    return add(inputs);
  }

  Capture& add(std::span<const Tensor* const> inputs) {
    auto fresh = std::make_shared<Capture>(inputs);
    if (captures.size() >= static_cast<std::size_t>(options.max_captures)) {
      const auto oldest = std::min_element(captures.begin(), captures.end(),
                                           [](const auto& a, const auto& b) { return a->last_used < b->last_used; });
      captures.erase(oldest);
    }
    captures.push_back(std::move(fresh));
    return *(last = captures.back().get());
  }

  void record(Capture& capture, Body body);
  void finish(Capture& capture, Recording& recording, std::shared_ptr<const Arena> arena, std::uint64_t epoch);
};

// Runs the function once; the run is a full step.
void StepRunner::Impl::record(Capture& capture, Body body) {
  std::shared_ptr<const Arena> arena;
  if (capture.runs > 0) {
    arena = std::make_shared<const Arena>(make_plan(capture.trace));
  }
  const auto recording =
      std::make_shared<Recording>(capture.runs > 0 ? &capture.trace : nullptr, arena, options.fuse_update);
  const std::uint64_t epoch = detail::step_epoch();
  std::vector<Tensor> outputs;
  core::said_facts() = {};
  try {
    const Recording::Scope scope(*recording);
    std::vector<Tensor> slots;
    slots.reserve(capture.slots.size());
    for (const Tensor& slot : capture.slots) {
      slots.emplace_back(slot.raw());  // a separate handle, so changes made by the function end with the run
    }
    outputs = body(slots);
    for (Tensor& output : outputs) {
      output = output.defined() ? output.detach() : output;
    }
    recording->settle_gradients();
  } catch (...) {
    recording->settle_or_drop_gradients();
    throw;
  }
  capture.outputs = std::move(outputs);
  capture.facts = core::said_facts().latest();
  finish(capture, *recording, std::move(arena), epoch);
}

void StepRunner::Impl::finish(Capture& capture, Recording& recording, std::shared_ptr<const Arena> arena,
                              std::uint64_t epoch) {
  std::unique_ptr<Recorded> recorded = recording.finish();
  const auto is_own = [&](const Draws& draws) { return draws.generator == capture.generator; };
  check<CaptureError>(!options.concurrent || std::ranges::all_of(recorded->draws, is_own),
                      "captured step: a step that several threads call draws random numbers from a generator that they "
                      "share; open a GeneratorScope around the calls of each thread, or call eval() where only dropout "
                      "draws");
  capture.leaves = recorded->leaves;
  capture.flags = recorded->flags;
  capture.epoch = detail::step_epoch();
  ++stats.recorded;
  ++capture.runs;
  const bool elsewhere = epoch != capture.epoch && !recording.changed();  // another thread made a change: try again
  if (recording.comparison().equal() && !recording.changed() && !elsewhere) {
    capture.trace = {};
    capture.replay = std::make_unique<Replay>(std::move(recorded), std::move(arena), capture.outputs);
    ++stats.captures;
    stats.launches = capture.replay->launches();
    stats.arena_bytes = capture.replay->plan().bytes;
    stats.temporary_bytes = capture.replay->plan().requested;
    stats.gpu_graphs = capture.replay->gpu_graphs();
    stats.fused_updates = capture.replay->fused_updates();
    stats.joined_launches = capture.replay->joined_launches();
    return;
  }
  capture.trace = std::move(recorded->trace);
  capture.runs = elsewhere ? 1 : capture.runs;
  check<CaptureError>(capture.runs < kMostRuns,
                      "captured step: {} runs, and no two in a row did the same: {}. It cannot be captured; call the "
                      "function itself",
                      capture.runs,
                      recording.changed() ? "the step moves or freezes parameters, switches a mode or registers hooks"
                                          : recording.comparison().difference());
}

// Each thread has recordings of its own here. A thread that ends leaves its recordings to the next one
// with its id.
struct StepRunner::OfThreads {
  CaptureOptions options;
  std::uint64_t number = next_number();  // not the address, which another step may get
  std::atomic<std::uint64_t> resets{0};
  core::ForkSafeMutex mutex;
  std::map<std::thread::id, std::unique_ptr<Impl>> impls;

  explicit OfThreads(const CaptureOptions& of) : options(of) {}

  static std::uint64_t next_number() noexcept {
    static std::atomic<std::uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
  }
  Impl& mine() {
    struct Latest {
      std::uint64_t number = 0;
      Impl* impl = nullptr;
    };
    thread_local Latest latest;
    if (latest.number != number) {
      const std::lock_guard lock(mutex);
      std::unique_ptr<Impl>& impl = impls[std::this_thread::get_id()];
      impl = impl ? std::move(impl) : std::make_unique<Impl>(options);
      latest = {number, impl.get()};
    }
    if (const std::uint64_t now = resets.load(std::memory_order_acquire); latest.impl->resets != now) {
      latest.impl->clear();
      latest.impl->resets = now;
    }
    return *latest.impl;
  }
};

StepRunner::StepRunner(const CaptureOptions& options) {
  check<ConfigError>(options.max_captures >= 1, "capture: max_captures must be >= 1, got {}", options.max_captures);
  if (options.concurrent) {
    of_threads_ = std::make_unique<OfThreads>(options);
  } else {
    impl_ = std::make_unique<Impl>(options);
  }
}
StepRunner::Impl& StepRunner::impl() const { return impl_ ? *impl_ : of_threads_->mine(); }
StepRunner::~StepRunner() = default;
StepRunner::StepRunner(StepRunner&&) noexcept = default;
StepRunner& StepRunner::operator=(StepRunner&&) noexcept = default;

std::span<const Tensor> StepRunner::run(std::span<const Tensor* const> inputs, Body body) {
  Impl& impl = this->impl();
  check<CaptureError>(detail::step_recorder() == nullptr,
                      "captured step: called inside another captured step; call the function itself there");
  check_inputs(inputs);
  Capture* const capture = &impl.find(inputs);
  capture->last_used = ++impl.calls;
  capture->copy_in(inputs);
  if (capture->replay) {
    const SpanScope timed(Phase::replay);
    if (detail::has_span_listeners()) {
      core::said_facts().repeat(capture->facts);
    }
    capture->replay->run();
    ++impl.stats.replayed;
    return capture->outputs;
  }
  // Keeps the capture alive, because the function may call reset().
  const auto self =
      std::find_if(impl.captures.begin(), impl.captures.end(), [&](const auto& held) { return held.get() == capture; });
  const std::shared_ptr<Capture> kept = *self;  // NOLINT(performance-unnecessary-copy-initialization)
  try {
    impl.record(*capture, body);
  } catch (...) {
    impl.forget(capture);
    throw;
  }
  return capture->outputs;
}

const CaptureStats& StepRunner::stats() const noexcept { return impl().stats; }
std::span<const Tensor> StepRunner::inputs() const noexcept {
  const Impl& mine = impl();
  return mine.last != nullptr ? std::span<const Tensor>(mine.last->slots) : std::span<const Tensor>();
}
void StepRunner::reset() noexcept {
  if (of_threads_) {
    of_threads_->resets.fetch_add(1, std::memory_order_acq_rel);
  }
  impl().clear();
}

}  // namespace tandem::inline v0::graph

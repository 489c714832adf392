#include <tandem/tensor/recorder.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/fork.h>

namespace tandem::inline v0::detail {

constinit std::atomic<int> use_observers{0};

namespace {

constinit std::atomic<std::uint64_t> epoch{0};
constinit thread_local bool is_unguarded = false;

struct Recorders {
  core::ForkSafeMutex mutex;
  std::vector<StepRecorder*> all;
};

Recorders& recorders() {
  static auto* list = new Recorders;  // outlives every thread
  return *list;
}

}  // namespace

RecorderScope::RecorderScope(StepRecorder& recorder) : recorder_(recorder) {
  const std::lock_guard lock(recorders().mutex);
  recorders().all.push_back(&recorder);
  use_observers.fetch_add(1, std::memory_order_relaxed);
  core::thread_state().recorder = &recorder;
}

RecorderScope::~RecorderScope() {
  core::thread_state().recorder = nullptr;
  const std::lock_guard lock(recorders().mutex);
  use_observers.fetch_sub(1, std::memory_order_relaxed);
  std::erase(recorders().all, &recorder_);
}

UnguardedScope::UnguardedScope() noexcept : was_(std::exchange(is_unguarded, true)) {}

UnguardedScope::~UnguardedScope() { is_unguarded = was_; }

void ask_guard(const Storage& storage) {
  if (StorageGuard* guard = storage.guard(); guard != nullptr && !is_unguarded) {
    guard->on_use(storage);
  }
}

void note_use(const Storage& storage) {
  ask_guard(storage);
  note_part_use(storage);
}

void note_part_use(const Storage& storage) noexcept {
  StepRecorder* own = core::thread_state().recorder;
  if (own != nullptr) {
    own->on_use(storage);
  }
  if (storage.recorded()) {
    const std::lock_guard lock(recorders().mutex);
    for (StepRecorder* other : recorders().all) {
      if (other != own) {
        other->on_foreign_use(storage);
      }
    }
  }
}

void throw_host_access(const char* call) {
  fail<CaptureError>(
      "{}a captured step cannot read or write elements on the host, a replay would not do it again. Return the tensor "
      "and look at it after the step; make constants before it [TDM-E209]",
      core::MessagePrefix{call});
}

std::uint64_t step_epoch() noexcept { return epoch.load(std::memory_order_relaxed); }
void note_step_change() noexcept {
  epoch.fetch_add(1, std::memory_order_relaxed);
  if (StepRecorder* recorder = step_recorder(); recorder != nullptr) {
    recorder->on_step_change();
  }
}

}  // namespace tandem::inline v0::detail

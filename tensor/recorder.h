#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include <tandem/core/intrusive.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/storage.h>
#include <tandem/tensor/view.h>

// Internal: what a captured step must see besides its launches. A thread that records has a StepRecorder on its
// ThreadState; everybody else pays for one load of `recorders_at_work`.

namespace tandem::inline v0 {

namespace autograd {
class Leaf;
}

namespace detail {

/// Sees a step of its thread while that is recorded.
class StepRecorder {
 public:
  /// Memory for a tensor of the step.
  virtual core::Ref<Storage> allocate(std::size_t bytes, Device device) = 0;
  /// Somebody takes the address of elements there.
  virtual void on_use(const Storage& storage) noexcept = 0;
  /// The same on a thread that does not record.
  virtual void on_foreign_use(const Storage& storage) noexcept = 0;
  virtual void on_draw(Generator& generator, std::uint64_t first, std::uint64_t blocks) = 0;
  /// The step is about to look whether a leaf has a gradient, or (`forget`) to make it have none.
  virtual void on_leaf(autograd::Leaf& leaf, bool forget) = 0;
  /// What the step does depends on `flag`, which calls note_step_change() when it goes.
  virtual void on_flag(const bool& flag) = 0;
  /// The step itself changed what decides what it does.
  virtual void on_step_change() noexcept = 0;
  /// Runs `work` now, unrecorded, and again in each replay.
  virtual void on_host_work(const char* name, std::function<void()> work) = 0;

 protected:
  ~StepRecorder() = default;
};

/// `recorder` sees this thread for a scope.
class RecorderScope {
 public:
  [[nodiscard]] explicit RecorderScope(StepRecorder& recorder);
  ~RecorderScope();
  RecorderScope(const RecorderScope&) = delete;
  RecorderScope& operator=(const RecorderScope&) = delete;

 private:
  StepRecorder& recorder_;
};

/// This thread's recorder, or null.
inline StepRecorder* step_recorder() noexcept {
  return recorders_at_work.load(std::memory_order_relaxed) == 0 ? nullptr : core::thread_state().recorder;
}

[[noreturn]] TANDEM_API void throw_host_access(const char* call);
/// The host is about to read or write elements itself, which no replay would do again: throws CaptureError naming
/// `call` while this thread records.
inline void note_host_access(const char* call) {
  if (step_recorder() != nullptr) [[unlikely]] {
    throw_host_access(call);
  }
}

/// Grows when what a captured step does may have changed: a parameter was moved or frozen, a hook registered, an
/// optimiser gone.
TANDEM_API std::uint64_t step_epoch() noexcept;
/// Makes captured steps record anew.
TANDEM_API void note_step_change() noexcept;
/// The same if a captured step uses what lies there.
inline void note_step_change(const Storage& storage) noexcept {
  if (storage.watched()) {
    note_step_change();
  }
}

/// A member of what captured steps may refer to: once they do, they record anew when it changes or goes.
class Watched {
 public:
  Watched() = default;
  ~Watched() { changed(); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  void watch() noexcept {
    if (step_recorder() != nullptr) [[unlikely]] {
      watched_.store(true, std::memory_order_relaxed);
    }
  }
  void changed() const noexcept {
    if (watched_.load(std::memory_order_relaxed)) {
      note_step_change();
    }
  }

 private:
  std::atomic<bool> watched_{false};
};

/// Work of the host that belongs to a step (checks of values, counts): done now, and again in each replay. An object
/// that it refers to must have a Watched that watches.
template <class Work>
void host_work(const char* name, const Work& work) {
  if (StepRecorder* recorder = step_recorder(); recorder != nullptr) [[unlikely]] {
    recorder->on_host_work(name, work);
    return;
  }
  work();
}

/// A setting that decides what a step does.
class WatchedFlag {
 public:
  explicit WatchedFlag(bool value) noexcept : value_(value) {}
  bool get() const {
    if (StepRecorder* recorder = step_recorder(); recorder != nullptr) [[unlikely]] {
      life_.watch();
      recorder->on_flag(value_);
    }
    return value_;
  }
  void set(bool value) noexcept {
    if (StepRecorder* recorder = step_recorder(); recorder != nullptr && value != value_) [[unlikely]] {
      recorder->on_step_change();  // a replay would not
    }
    value_ = value;
  }

 private:
  bool value_;
  mutable Watched life_;
};

}  // namespace detail
}  // namespace tandem::inline v0

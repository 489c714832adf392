#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>

#include <tandem/core/function_ref.h>
#include <tandem/core/intrusive.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/storage.h>
#include <tandem/tensor/view.h>

// Internal: the events besides launches that a captured step must see. A recording thread has a StepRecorder on its
// ThreadState; every other thread pays for one load of `use_observers`.

namespace tandem::inline v0 {

namespace autograd {
class Leaf;
}

namespace detail {

/// Describes the failure of a lane in a replay: returns the exception to throw. Called on the thread that replays.
using LaneFailure = std::function<std::exception_ptr(std::size_t lane, std::exception_ptr failure)>;

/// Observes a step on its thread while the step is recorded.
class StepRecorder {
 public:
  /// Allocates memory for a tensor of the step.
  virtual core::Ref<Storage> allocate(std::size_t bytes, Device device) = 0;
  /// Whether gradients may be left to the optimiser's update, which then computes them on its way.
  virtual bool fuses_updates() const noexcept = 0;
  /// The recording thread takes the address of elements in `storage`.
  virtual void on_use(const Storage& storage) noexcept = 0;
  /// A thread that does not record takes the address of elements in `storage`.
  virtual void on_foreign_use(const Storage& storage) noexcept = 0;
  virtual void on_draw(Generator& generator, std::uint64_t first, std::uint64_t blocks) = 0;
  /// The step is about to ask whether a leaf has a gradient, or (`forget`) to drop that gradient.
  virtual void on_leaf(autograd::Leaf& leaf, bool forget) = 0;
  /// The step depends on `flag`, whose owner calls note_step_change() when it is destroyed.
  virtual void on_flag(const bool& flag) = 0;
  /// The step itself has changed a setting that decides its operations.
  virtual void on_step_change() noexcept = 0;
  /// Host work that uses no elements on a GPU. Runs `now` without recording it, and `again` in each replay, where
  /// launches of a GPU graph from before it may still be to come. A step repeats itself only if `which` is the same,
  /// too: it stands for all that `again` does and that the name does not tell.
  virtual void on_host_work(const char* name, std::uint64_t which, core::FunctionRef<void()> now,
                            std::function<void()> again) = 0;
  /// Like on_host_work() for work that reads or writes elements, and so has its place among the launches: no GPU graph
  /// goes across it. `again` has the grad mode and the device that this thread has now.
  virtual void on_placed_work(const char* name, std::uint64_t which, core::FunctionRef<void()> now,
                              std::function<void()> again) = 0;
  /// Calls body(k) for each lane, one lane after another on this thread. A replay runs the lanes at the same time, so a
  /// lane must not need what another lane of this call does. Lanes within a lane run one by one in the replay too.
  virtual void run_lanes(std::size_t lanes, core::FunctionRef<void(std::size_t)> body, LaneFailure describe) = 0;
  /// `settle` is called when a replay throws, with the exception and before anyone else sees it.
  virtual void on_replay_failure(std::function<void(const std::exception&)> settle) = 0;

 protected:
  ~StepRecorder() = default;
};

/// Makes `recorder` the recorder of this thread for a scope.
class RecorderScope {
 public:
  [[nodiscard]] explicit RecorderScope(StepRecorder& recorder);
  ~RecorderScope();
  RecorderScope(const RecorderScope&) = delete;
  RecorderScope& operator=(const RecorderScope&) = delete;

 private:
  StepRecorder& recorder_;
};

/// The recorder of this thread, or null.
inline StepRecorder* step_recorder() noexcept {
  return use_observers.load(std::memory_order_relaxed) == 0 ? nullptr : core::thread_state().recorder;
}

/// Whether this thread records a step that leaves gradients to the optimiser's update.
inline bool fuses_updates() noexcept {
  const StepRecorder* recorder = step_recorder();
  return recorder != nullptr && recorder->fuses_updates();
}

[[noreturn]] TANDEM_API void throw_host_access(const char* call);
/// Called before the host reads or writes elements itself, which a replay would not repeat. Throws CaptureError naming
/// `call` while this thread records.
inline void note_host_access(const char* call) {
  if (step_recorder() != nullptr) [[unlikely]] {
    throw_host_access(call);
  }
}

/// A counter that grows when the operations of a captured step may have changed: a parameter was moved or frozen, a
/// hook registered, an optimiser destroyed.
TANDEM_API std::uint64_t step_epoch() noexcept;
/// Makes captured steps record again.
TANDEM_API void note_step_change() noexcept;
/// Makes captured steps record again if one of them uses this storage.
inline void note_step_change(const Storage& storage) noexcept {
  if (storage.watched()) {
    note_step_change();
  }
}

/// A member of objects to which captured steps may refer. Once a step refers to the object, captured steps record again
/// when it changes or is destroyed.
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

/// Host work that belongs to a step (checks of values, counts): runs now, and again in each replay. Every object to
/// which `work` refers must have a Watched that is watching.
template <class Work>
void host_work(const char* name, const Work& work) {
  if (StepRecorder* recorder = step_recorder(); recorder != nullptr) [[unlikely]] {
    recorder->on_host_work(name, 0, work, work);
    return;
  }
  work();
}

/// Like host_work() for work that reads or writes elements, see StepRecorder::on_placed_work().
template <class Work>
void placed_work(const char* name, const Work& work) {
  if (StepRecorder* recorder = step_recorder(); recorder != nullptr) [[unlikely]] {
    recorder->on_placed_work(name, 0, work, work);
    return;
  }
  work();
}

/// Returns a view for placed work, which must not keep the memory of the step alive.
inline View borrowed(const View& view) {
  View result = view;
  if (view.defined()) {
    static_cast<void>(view.data());  // notes the use
    result.storage = Storage::adopt(view.storage->data(), view.storage->bytes(), view.device(), {});
  }
  return result;
}

/// A setting that decides the operations of a step.
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
      recorder->on_step_change();  // a replay would not repeat the change
    }
    value_ = value;
  }

 private:
  bool value_;
  mutable Watched life_;
};

}  // namespace detail
}  // namespace tandem::inline v0

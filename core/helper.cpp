#include <tandem/core/helper.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/fork.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0::core {

/// One reusable thread, kept to the end of the process. The mutex guards what stands below it.
struct Helper::Slot {
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> task;
  ThreadState state;
  bool busy = false;
  bool lost = false;  // its thread is in the parent of a forked child
  std::exception_ptr error;
  std::jthread thread;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return static_cast<bool>(task); });
      auto work = std::exchange(task, nullptr);
      lock.unlock();
      std::exception_ptr failure;
      try {
        const ThreadStateScope carried(state);
        work();
      } catch (...) {
        failure = std::current_exception();
      }
      work = nullptr;  // what the task holds goes before anyone is told that it is over
      lock.lock();
      error = failure;
      busy = false;
      changed.notify_all();
    }
  }

  // Nobody is there to end the task, to let go of the lock, or to be woken.
  void lose_thread() {
    new (&mutex) std::mutex;
    new (&changed) std::condition_variable;
    lost = true;
    if (std::exchange(busy, false)) {
      error = std::make_exception_ptr(
          Error("Helper: the process was forked while its task ran, on a thread that the child does not have; in a "
                "child, start tasks anew"));
    }
  }

  struct All {
    ForkSafeMutex mutex;
    std::vector<std::unique_ptr<Slot>> slots;
    std::vector<Slot*> idle;
  };
  static All& all() {
    static auto* const made = [] {
      in_forked_child([] {
        all().idle.clear();
        for (const std::unique_ptr<Slot>& slot : all().slots) {
          slot->lose_thread();
        }
      });
      return new All;  // never destroyed, like the pool
    }();
    return *made;
  }

  static Slot* take() {
    const std::lock_guard lock(all().mutex);
    if (!all().idle.empty()) {
      Slot* const slot = all().idle.back();
      all().idle.pop_back();
      return slot;
    }
    Slot* const slot = all().slots.emplace_back(std::make_unique<Slot>()).get();
    slot->thread = std::jthread([slot] { slot->run(); });
    return slot;
  }
};

Helper::Helper(std::function<void()> task) {
  check<ConfigError>(static_cast<bool>(task), "Helper: the task is empty");
  slot_ = Slot::take();
  {
    const std::lock_guard lock(slot_->mutex);
    slot_->state = thread_state();
    slot_->task = std::move(task);
    slot_->busy = true;
  }
  slot_->changed.notify_all();
}

Helper::Helper(Helper&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}

void Helper::join() {
  if (slot_ == nullptr) {
    return;
  }
  Slot* const slot = std::exchange(slot_, nullptr);
  std::exception_ptr error;
  {
    std::unique_lock lock(slot->mutex);
    slot->changed.wait(lock, [&] { return !slot->busy; });
    error = std::exchange(slot->error, nullptr);
  }
  if (!slot->lost) {
    const std::lock_guard lock(Slot::all().mutex);
    Slot::all().idle.push_back(slot);
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

Helper::~Helper() {
  try {
    join();
  } catch (...) {  // the owner is already on its way out with an earlier error
  }
}

}  // namespace tandem::inline v0::core

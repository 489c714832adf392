#include <tandem/core/helper.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0::core {

/// One reusable thread. `task` and `done` are guarded by the mutex.
struct Helper::Slot {
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> task;
  ThreadState state;
  bool busy = false;
  bool stopping = false;
  std::exception_ptr error;
  std::jthread thread;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || task; });
      if (stopping) {
        return;
      }
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

  ~Slot() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
  }

  // Threads that wait for their next task.
  struct Idle {
    std::mutex mutex;
    std::vector<std::shared_ptr<Slot>> slots;
  };
  static Idle& idle() {
    static auto& list = *new Idle;  // never destroyed, like the pool
    return list;
  }
};

Helper::Helper(std::function<void()> task) {
  check<ConfigError>(static_cast<bool>(task), "Helper: the task is empty");
  Slot::Idle& idle = Slot::idle();
  {
    const std::lock_guard lock(idle.mutex);
    if (!idle.slots.empty()) {
      slot_ = std::move(idle.slots.back());
      idle.slots.pop_back();
    }
  }
  if (!slot_) {
    slot_ = std::make_shared<Slot>();
    slot_->thread = std::jthread([slot = slot_.get()] { slot->run(); });
  }
  {
    const std::lock_guard lock(slot_->mutex);
    slot_->state = thread_state();
    slot_->task = std::move(task);
    slot_->busy = true;
  }
  slot_->changed.notify_all();
}

Helper::Helper(Helper&&) noexcept = default;

void Helper::join() {
  if (!slot_) {
    return;
  }
  std::exception_ptr error;
  {
    std::unique_lock lock(slot_->mutex);
    slot_->changed.wait(lock, [&] { return !slot_->busy; });
    error = std::exchange(slot_->error, nullptr);
  }
  {
    Slot::Idle& idle = Slot::idle();
    const std::lock_guard lock(idle.mutex);
    idle.slots.push_back(std::move(slot_));
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

#include <tandem/core/fork.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <pthread.h>

namespace tandem::inline v0::core {

namespace {

// The number of threads that are about to fork and wait for mutexes.
constinit std::atomic<int> threads_that_fork{0};
constinit thread_local int held = 0;  // mutexes held by this thread

// Threads that take turns on a mutex without a pause could starve a forking thread for minutes. A thread that holds no
// mutex therefore waits before it locks the next one. The wait is bounded, because the thread may hold a mutex in an
// uncounted way (condition variables).
void make_way() noexcept {
  constexpr int kNaps = 20;
  for (int i = 0; i < kNaps && threads_that_fork.load(std::memory_order_relaxed) != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

struct Registry {
  std::mutex mutex;
  std::vector<std::mutex*> mutexes;
  std::vector<void (*)()> in_child;

  bool try_lock_all() {
    for (std::size_t i = 0; i < mutexes.size(); ++i) {
      if (!mutexes[i]->try_lock()) {
        std::for_each(mutexes.data(), mutexes.data() + i, [](std::mutex* taken) { taken->unlock(); });
        return false;
      }
    }
    return true;
  }

  // A thread that holds one mutex may need another, in an order only its own code knows. The forking thread therefore
  // holds nothing while it waits.
  void before() {
    ++threads_that_fork;
    for (;;) {
      mutex.lock();
      if (try_lock_all()) {
        return;
      }
      mutex.unlock();
      std::this_thread::yield();
    }
  }

  void after() {
    for (std::mutex* taken : mutexes) {
      taken->unlock();
    }
    mutex.unlock();
    --threads_that_fork;
  }
};

Registry& registry() {
  static auto* const all = [] {
    static auto* const made = new Registry;  // outlives every thread and static object
    pthread_atfork([] { made->before(); }, [] { made->after(); },
                   [] {
                     made->after();
                     threads_that_fork = 0;  // the other forking threads do not exist in the child
                     for (void (*action)() : made->in_child) {
                       action();
                     }
                   });
    return made;
  }();
  return *all;
}

}  // namespace

ForkSafeMutex::ForkSafeMutex() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.mutexes.push_back(this);
}

ForkSafeMutex::~ForkSafeMutex() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase(all.mutexes, this);
}

void ForkSafeMutex::lock() {
  if (held == 0 && threads_that_fork.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    make_way();
  }
  std::mutex::lock();
  ++held;
}

void ForkSafeMutex::unlock() {
  --held;
  std::mutex::unlock();
}

void in_forked_child(void (*action)()) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.in_child.push_back(action);
}

}  // namespace tandem::inline v0::core

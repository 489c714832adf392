#include <tandem/core/fork.h>

#include <algorithm>
#include <thread>
#include <vector>

#include <pthread.h>

namespace tandem::inline v0::core {

namespace {

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

  // Whoever holds one may need another, and the order is theirs: so nothing is held while waiting.
  void before() {
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
  }
};

Registry& registry() {
  static auto* const all = [] {
    static auto* const made = new Registry;  // outlives every thread and static object
    pthread_atfork([] { made->before(); }, [] { made->after(); },
                   [] {
                     made->after();
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

void in_forked_child(void (*action)()) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.in_child.push_back(action);
}

}  // namespace tandem::inline v0::core

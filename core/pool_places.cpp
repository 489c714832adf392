#include <tandem/core/pool_places.h>

#include <new>

namespace tandem::inline v0::core {

namespace {

using Clock = PoolPlace::Clock;
using std::chrono::microseconds;

// A thread whose last call is more recent than kRecent counts as busy; a caller recounts busy threads every kRecount.
constexpr Clock::duration kRecent = microseconds(1000);
constexpr Clock::duration kRecount = microseconds(50);

constinit thread_local PoolPlace* own_place = nullptr;
constinit thread_local bool ends = false;
constinit thread_local bool is_worker = false;

struct GiveBackPlace {
  ~GiveBackPlace() {
    ends = true;
    own_place->active.store(PoolPlace::kFree, std::memory_order_release);
  }
};

bool is_busy(const PoolPlace& place, Clock::time_point now) {
  return place.active.load(std::memory_order_relaxed) >= (now - kRecent).time_since_epoch().count();
}

}  // namespace

bool PoolPlaces::is_recent(Clock::time_point time) noexcept { return Clock::now() - time <= kRecent; }
bool PoolPlaces::thread_ends() noexcept { return ends; }
void PoolPlaces::set_worker() noexcept { is_worker = true; }

PoolPlace& PoolPlaces::own() {
  if (own_place == nullptr) {
    own_place = claim();
    own_place->of_worker.store(is_worker, std::memory_order_relaxed);
    static thread_local const GiveBackPlace give_back;
  }
  return *own_place;
}

PoolPlace* PoolPlaces::claim() {
  for (PoolPlace* place = first(); place != nullptr; place = place->next) {
    Clock::rep free = PoolPlace::kFree;
    if (place->active.compare_exchange_strong(free, PoolPlace::kIdle, std::memory_order_acquire)) {
      return place;
    }
  }
  auto* place = new PoolPlace;
  place->next = first_.load(std::memory_order_relaxed);
  while (!first_.compare_exchange_weak(place->next, place, std::memory_order_release)) {
  }
  return place;
}

int PoolPlaces::count_busy() const {
  const auto now = Clock::now();
  int busy = 0;
  for (const PoolPlace* place = first(); place != nullptr; place = place->next) {
    busy += !place->of_worker.load(std::memory_order_relaxed) && is_busy(*place, now) ? 1 : 0;
  }
  return busy;
}

void PoolPlaces::look_around(PoolPlace& own) const {
  if (own.next == nullptr && first_.load(std::memory_order_relaxed) == &own) {
    own.busy_callers = 1;
    own.busy_workers = 0;
    own.rank = 0;
    return;
  }
  const auto now = Clock::now();
  if (now - own.counted <= kRecount) {
    return;
  }
  own.counted = now;
  own.busy_callers = 0;
  own.busy_workers = 0;
  for (const PoolPlace* place = first(); place != nullptr; place = place->next) {
    if (place == &own) {
      own.rank = own.busy_callers;
    }
    if (place == &own || is_busy(*place, now)) {
      ++own.busy_callers;
      own.busy_workers += place->of_worker.load(std::memory_order_relaxed) ? 1 : 0;
    }
  }
}

bool PoolPlaces::is_running() const {
  for (const PoolPlace* place = first(); place != nullptr; place = place->next) {
    if (place->active.load(std::memory_order_relaxed) == PoolPlace::kInside) {
      return true;
    }
  }
  return false;
}

void PoolPlaces::forget_others() {
  for (PoolPlace* place = first(); place != nullptr; place = place->next) {
    if (place != own_place) {
      PoolPlace* const next = place->next;
      new (place) PoolPlace;
      place->next = next;
      place->active = PoolPlace::kFree;
    }
  }
}

}  // namespace tandem::inline v0::core

#include <tandem/core/peak_place.h>

#include <map>
#include <mutex>
#include <new>
#include <utility>

#include <tandem/core/fork.h>

namespace tandem::inline v0::core {

namespace {

struct Places {
  ForkSafeMutex mutex;
  std::map<int, Peak> by_gpu;
};

Places& places() {
  static auto* const list = new Places;  // outlives every tensor
  return *list;
}

}  // namespace

std::atomic<std::uint64_t> PeakWatch::restarts{0};

void PeakWatch::raise(std::size_t in_use) noexcept {
  try {
    std::string place = place_of_this_thread();
    const std::lock_guard lock(places().mutex);
    places().by_gpu[gpu_] = {in_use, std::move(place)};
    most_ = in_use;
    restarts_ = restarts.load(std::memory_order_relaxed);
  } catch (const std::bad_alloc&) {  // an older place stays
  }
}

void restart_peaks() noexcept {
  const std::lock_guard lock(places().mutex);
  places().by_gpu.clear();
  PeakWatch::restarts.fetch_add(1, std::memory_order_relaxed);
}

Peak peak_of(int gpu) {
  const std::lock_guard lock(places().mutex);
  const auto found = places().by_gpu.find(gpu);
  return found != places().by_gpu.end() ? found->second : Peak();
}

}  // namespace tandem::inline v0::core

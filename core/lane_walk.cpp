#include <tandem/core/lane_walk.h>

#include <chrono>

#include <tandem/core/thread_pool.h>

namespace tandem::inline v0::core {

namespace {

// Longer than most nodes of a small model, and longer than the usual lag between two replicas.
constexpr auto kPatienceOfLanes = std::chrono::microseconds(100);

}  // namespace

void LaneWalk::run(std::size_t count, const Tasks& tasks) {
  remaining_ = count;
  lanes_.front().awaited = true;  // reserves the lane for the calling thread, even if another thread is faster
  ThreadPool::instance().for_each_lane(static_cast<std::int64_t>(lanes_.size()),
                                       [&](std::int64_t lane) { walk(static_cast<std::size_t>(lane), tasks); });
  if (failure_) {
    std::rethrow_exception(failure_);
  }
}

void LaneWalk::walk(std::size_t own, const Tasks& tasks) {
  std::unique_lock lock(mutex_);
  lanes_[own].awaited = false;
  while (remaining_ > 0 && !failure_) {
    const std::size_t chosen = choose(own, tasks);
    if (chosen == lanes_.size()) {
      wait(own, lock);
      continue;
    }
    lanes_[chosen].taken = true;
    do {
      lock.unlock();
      try {
        tasks.process(chosen);
        lock.lock();
        --remaining_;
        tasks.finish(chosen);
      } catch (...) {
        lock.lock();
        failure_ = failure_ ? failure_ : std::current_exception();
      }
      announce();
    } while (!failure_ && tasks.is_ready(chosen));
    lanes_[chosen].taken = false;
  }
}

// A lane to work on, preferably `own`; lanes_.size() if no lane is ready.
std::size_t LaneWalk::choose(std::size_t own, const Tasks& tasks) const {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const std::size_t lane = (own + i) % lanes_.size();
    if (!lanes_[lane].taken && !lanes_[lane].awaited && tasks.is_ready(lane)) {
      return lane;
    }
  }
  return lanes_.size();
}

void LaneWalk::wait(std::size_t own, std::unique_lock<SpinLock>& lock) {
  lanes_[own].awaited = true;
  const std::uint32_t seen = events_.load(std::memory_order_relaxed);
  const auto has_news = [&] { return events_.load(std::memory_order_acquire) != seen; };
  lock.unlock();
  const bool came = spin_until(kPatienceOfLanes, has_news);
  lock.lock();
  if (!came) {
    ++waiting_;
    progress_.wait(lock, has_news);
    --waiting_;
  }
  lanes_[own].awaited = false;
}

void LaneWalk::announce() {
  events_.fetch_add(1, std::memory_order_release);
  if (waiting_ > 0) {
    progress_.notify_all();
  }
}

}  // namespace tandem::inline v0::core

#include <tandem/core/thread_pool.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <forward_list>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/cores.h>
#include <tandem/core/fork.h>
#include <tandem/core/pool_places.h>
#include <tandem/core/span.h>
#include <tandem/core/spin.h>
#include <tandem/core/system_limits.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0 {

namespace core {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr int kMaxThreads = 256;
// Several times the cost of a wake-up on a virtual machine; the time between two ops of a step is shorter.
constexpr Clock::duration kPatience = microseconds(200);

thread_local bool inside_chunk = false;
thread_local bool inside_lane = false;

int initial_threads() {
  const char* text = std::getenv("TANDEM_NUM_THREADS");
  if (text == nullptr) {
    return std::min(available_cores(), kMaxThreads);
  }
  int count = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, count);
  check<ConfigError>(error == std::errc() && stop == end && count >= 1 && count <= kMaxThreads,
                     "TANDEM_NUM_THREADS='{}': expected a number from 1 to {}", text, kMaxThreads);
  return count;
}

// Whether the calling thread must run all of its chunks itself, because it is inside a chunk or about to end.
bool works_alone() { return inside_chunk || PoolPlaces::thread_ends(); }

}  // namespace

struct ThreadPool::Impl {
  PoolPlaces places;
  std::atomic<std::uint32_t> generation{0};  // incremented by every new call; spinning workers watch it
  std::atomic<int> parked{0};
  std::atomic<int> threads{1};
  std::atomic<bool> stopping{false};
  ForkSafeMutex parking;  // guards the two waits below
  std::condition_variable call_arrived;
  std::condition_variable visitors_left;
  std::vector<std::jthread> workers;
  std::forward_list<std::vector<std::jthread>> forgotten;  // a child's copy of the parent's workers, kept reachable
  ForkSafeMutex resizing;                                  // held by the thread that changes `workers`
  const int cores = available_cores();

  // The caller's share of the threads; the first callers get the remainder.
  int share(PoolPlace& own) const {
    places.look_around(own);
    const int all = threads.load(std::memory_order_relaxed);
    const int busy = std::max(1, own.busy_callers);
    return std::max(1, all / busy + (own.rank < all % busy ? 1 : 0));
  }

  // Threads spin only while that takes no core away from a computing thread.
  Clock::duration patience(int busy) const {
    return threads.load(std::memory_order_relaxed) - 1 + busy <= cores ? kPatience : Clock::duration(0);
  }

  bool help_someone() {
    for (PoolPlace* place = places.first(); place != nullptr; place = place->next) {
      if (visit(place->chunks, false) || visit(place->lanes, true)) {
        return true;
      }
    }
    return false;
  }

  bool visit(PoolCaller& call, bool lanes) {
    if (!call.enter()) {
      return false;
    }
    {
      const ThreadStateScope carried(call.state());
      if (lanes) {
        run_lanes(call);
      } else {
        call.work(true);
      }
    }
    if (call.leave()) {
      const std::lock_guard lock(parking);
      visitors_left.notify_all();
    }
    return true;
  }

  // A worker that runs a lane becomes a caller for that time, like a thread of the program.
  void run_lanes(PoolCaller& call) {
    PoolPlace& own = places.own();
    own.enter();
    inside_chunk = false;
    inside_lane = true;
    call.work(true);
    inside_lane = false;
    inside_chunk = true;
    own.active.store(PoolPlace::kIdle, std::memory_order_relaxed);  // available to other callers at once
  }

  void run_worker() {
    inside_chunk = true;
    PoolPlaces::set_worker();
    set_thread_purpose("worker");
    for (;;) {
      const std::uint32_t seen = generation.load();
      const auto has_news = [&] { return generation.load() != seen; };
      if (stopping.load(std::memory_order_relaxed)) {
        return;
      }
      if (!help_someone() && !spin_until(patience(places.count_busy()), has_news)) {
        std::unique_lock<std::mutex> lock(parking);
        ++parked;
        call_arrived.wait(lock, has_news);
        --parked;
      }
    }
  }

  // A parking worker increments the count before it checks the generation; this thread checks the count after it
  // changed the generation. At least one of the two notices the other.
  void announce(int wanted) {
    ++generation;
    if (parked.load() > 0) {
      {
        const std::lock_guard lock(parking);
      }
      for (int i = 0; i < wanted; ++i) {
        call_arrived.notify_one();
      }
    }
  }

  void wait_for_visitors(PoolCaller& call, Clock::duration patience) {
    if (spin_until(patience, [&] { return call.is_deserted(); })) {
      return;
    }
    std::unique_lock<std::mutex> lock(parking);
    call.fall_asleep();
    visitors_left.wait(lock, [&] { return call.is_deserted(); });
    call.wake_up();
  }

  // The caller's side of a call; `inside` is true while the caller runs its own part.
  void call(PoolPlace& own, PoolCaller& work, FunctionRef<void(std::int64_t)> body, std::int64_t count, int helpers,
            bool& inside) {
    work.open(body, count, helpers);
    if (helpers > 0) {
      announce(helpers);
    }
    inside = true;
    work.work(false);
    inside = false;
    work.close();
    wait_for_visitors(work, patience(own.busy_callers - own.busy_workers));
    if (inside_lane) {
      own.enter();
    } else {
      own.leave();
    }
    if (const std::exception_ptr error = work.take_error()) {
      std::rethrow_exception(error);
    }
  }

  // Throws ConfigError and continues with one thread if the system refuses to start `count` threads.
  void start(int count) {
    threads = 1;
    try {
      for (int i = 1; i < count; ++i) {
        workers.emplace_back([this] { run_worker(); });
      }
    } catch (const std::system_error& error) {
      const std::size_t started = workers.size() + 1;
      stop();
      fail<ConfigError>(
          "{} compute threads: the system refuses more than {} ({}); ask for fewer by set_num_threads() or "
          "TANDEM_NUM_THREADS",
          count, started, system_message(error.code().value()));
    }
    threads = count;
  }

  void stop() {
    stopping = true;
    announce(kMaxThreads);
    workers.clear();
    stopping = false;
  }

  // A child cannot join its parent's workers and must not run chunks that other threads were about to hand out, so both
  // are forgotten.
  void in_child() {
    forgotten.push_front(std::exchange(workers, {}));
    // The condition variables count waiters that no longer exist, and a notification may block on those.
    new (&call_arrived) std::condition_variable;
    new (&visitors_left) std::condition_variable;
    parked = 0;
    threads = 1;
    places.forget_others();
  }
};

ThreadPool& ThreadPool::instance() {
  // The pool is never destroyed: destructors of other static objects may still compute, and a forked child has no
  // threads to join.
  static auto* const pool = [] {
    auto* const made = new ThreadPool;
    static Impl* const impl = made->impl_.get();
    in_forked_child([] { impl->in_child(); });
    return made;
  }();
  return *pool;
}

ThreadPool::ThreadPool() : impl_(std::make_unique<Impl>()) { impl_->start(initial_threads()); }

ThreadPool::~ThreadPool() { impl_->stop(); }

int ThreadPool::num_threads() const noexcept { return impl_->threads.load(std::memory_order_relaxed); }

void ThreadPool::set_num_threads(int count) {
  check<ConfigError>(count >= 1 && count <= kMaxThreads, "set_num_threads: expected 1 to {}, got {}", kMaxThreads,
                     count);
  check<ConfigError>(!inside_chunk && !inside_lane && !impl_->places.is_running(),
                     "set_num_threads: called while an op is running; call it between ops");
  const std::lock_guard lock(impl_->resizing);
  if (count != num_threads()) {
    impl_->stop();
    impl_->start(count);
  }
}

int ThreadPool::share() { return works_alone() || num_threads() == 1 ? 1 : impl_->share(impl_->places.own()); }

bool ThreadPool::had_lanes() { return !works_alone() && PoolPlaces::is_recent(impl_->places.own().had_lanes); }

void ThreadPool::for_each_chunk(std::int64_t chunks, FunctionRef<void(std::int64_t)> body) {
  if (chunks <= 0 || chunks > PoolCaller::kMostChunks || works_alone() || num_threads() == 1) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      body(chunk);
    }
    return;
  }
  PoolPlace& own = impl_->places.own();
  own.enter();
  const int helpers = static_cast<int>(std::min<std::int64_t>(chunks, impl_->share(own))) - 1;
  impl_->call(own, own.chunks, body, chunks, helpers, inside_chunk);
}

void ThreadPool::for_each_lane(std::int64_t lanes, FunctionRef<void(std::int64_t)> body) {
  const int threads = num_threads();
  if (lanes <= 1 || works_alone() || inside_lane || threads == 1) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      body(lane);
    }
    return;
  }
  PoolPlace& own = impl_->places.own();
  own.enter();
  impl_->places.look_around(own);
  impl_->call(own, own.lanes, body, lanes, static_cast<int>(std::min<std::int64_t>(lanes, threads)) - 1, inside_lane);
  own.had_lanes = PoolPlace::Clock::now();
  own.counted = {};  // workers that were callers during the lanes are plain workers again
}

}  // namespace core

int num_threads() { return core::ThreadPool::instance().num_threads(); }
void set_num_threads(int count) { core::ThreadPool::instance().set_num_threads(count); }

}  // namespace tandem::inline v0

#include <tandem/core/thread_pool.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0 {

namespace core {

namespace {

constexpr int kMaxThreads = 256;
constexpr int kSpins = 4000;  // about 20-40 us of pause instructions: the order of one wake-up

thread_local bool inside_chunk = false;

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

int hardware_threads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

int initial_threads() {
  const char* text = std::getenv("TANDEM_NUM_THREADS");
  if (text == nullptr) {
    return std::min(hardware_threads(), kMaxThreads);
  }
  int count = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, count);
  check<ConfigError>(error == std::errc() && stop == end && count >= 1 && count <= kMaxThreads,
                     "TANDEM_NUM_THREADS='{}': expected a number from 1 to {}", text, kMaxThreads);
  return count;
}

/// One call of for_each_chunk; lives on its caller's stack until no worker looks at it.
struct Job {
  FunctionRef<void(std::int64_t)> body;
  std::int64_t chunks;
  const ThreadState state;  // a copy: the caller's own chunks may change theirs while a worker comes in late

  Job(FunctionRef<void(std::int64_t)> b, std::int64_t c, const ThreadState& s) : body(b), chunks(c), state(s) {}

  std::atomic<std::int64_t> next{0};
  int visitors = 0;  // workers inside, guarded by the pool's mutex
  std::mutex error_mutex;
  std::int64_t error_chunk = -1;
  std::exception_ptr error;

  void work() {
    for (;;) {
      const std::int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks) {
        return;
      }
      try {
        body(chunk);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (error_chunk < 0 || chunk < error_chunk) {
          error_chunk = chunk;
          error = std::current_exception();
        }
      }
    }
  }
};

}  // namespace

struct ThreadPool::Impl {
  std::mutex mutex;
  std::condition_variable work_arrived;
  std::condition_variable visitor_left;
  std::vector<Job*> jobs;
  std::atomic<std::uint32_t> generation{0};  // bumped with every new job, watched by spinning workers
  std::atomic<int> callers{0};
  std::vector<std::jthread> workers;
  std::atomic<int> threads{1};
  std::mutex resizing;  // one thread at a time changes `workers`
  bool stopping = false;
  const int cores = hardware_threads();

  void run_worker() {
    inside_chunk = true;
    std::unique_lock lock(mutex);
    std::uint32_t seen = generation.load(std::memory_order_relaxed);
    for (;;) {
      if (stopping) {
        return;
      }
      if (Job* job = pick(); job != nullptr) {
        ++job->visitors;
        lock.unlock();
        {
          const ThreadStateScope carried(job->state);
          job->work();
        }
        lock.lock();
        if (--job->visitors == 0) {
          visitor_left.notify_all();
        }
        continue;
      }
      seen = generation.load(std::memory_order_relaxed);
      lock.unlock();
      if (threads.load(std::memory_order_relaxed) - 1 + callers.load(std::memory_order_relaxed) <= cores) {
        for (int i = 0; i < kSpins && generation.load(std::memory_order_acquire) == seen; ++i) {
          pause();
        }
      }
      lock.lock();
      if (!stopping && generation.load(std::memory_order_relaxed) == seen) {
        work_arrived.wait(lock, [&] { return stopping || generation.load(std::memory_order_relaxed) != seen; });
      }
    }
  }

  Job* pick() {
    for (Job* job : jobs) {
      if (job->next.load(std::memory_order_relaxed) < job->chunks) {
        return job;
      }
    }
    return nullptr;
  }

  void start(int count) {
    threads = count;
    for (int i = 1; i < count; ++i) {
      workers.emplace_back([this] { run_worker(); });
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
      ++generation;
    }
    work_arrived.notify_all();
    workers.clear();
    stopping = false;
  }
};

ThreadPool& ThreadPool::instance() {
  // Never destroyed: destructors of other static objects may still compute, and a forked child has no threads to join.
  static auto* const pool = new ThreadPool;
  return *pool;
}

ThreadPool::ThreadPool() : impl_(std::make_unique<Impl>()) { impl_->start(initial_threads()); }

ThreadPool::~ThreadPool() { impl_->stop(); }

int ThreadPool::num_threads() const noexcept { return impl_->threads.load(std::memory_order_relaxed); }

void ThreadPool::set_num_threads(int count) {
  check<ConfigError>(count >= 1 && count <= kMaxThreads, "set_num_threads: expected 1 to {}, got {}", kMaxThreads,
                     count);
  check<ConfigError>(!inside_chunk && impl_->callers.load() == 0,
                     "set_num_threads: called while an op is running; call it between ops");
  const std::lock_guard lock(impl_->resizing);
  if (count != num_threads()) {
    impl_->stop();
    impl_->start(count);
  }
}

void ThreadPool::for_each_chunk(std::int64_t chunks, FunctionRef<void(std::int64_t)> body) {
  if (chunks == 1 || inside_chunk || num_threads() == 1) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      body(chunk);
    }
    return;
  }
  Impl& pool = *impl_;
  pool.callers.fetch_add(1, std::memory_order_relaxed);
  Job job(body, chunks, thread_state());
  {
    const std::lock_guard lock(pool.mutex);
    pool.jobs.push_back(&job);
    pool.generation.fetch_add(1, std::memory_order_release);
  }
  pool.work_arrived.notify_all();

  inside_chunk = true;
  job.work();
  inside_chunk = false;

  // All chunks are claimed; those still running are a chunk's work away from their end. Spin first: it is short.
  std::unique_lock lock(pool.mutex);
  std::erase(pool.jobs, &job);
  for (int i = 0; i < kSpins && job.visitors > 0; ++i) {
    lock.unlock();
    pause();
    lock.lock();
  }
  pool.visitor_left.wait(lock, [&] { return job.visitors == 0; });
  lock.unlock();
  pool.callers.fetch_sub(1, std::memory_order_relaxed);
  if (job.error) {
    std::rethrow_exception(job.error);
  }
}

// ---- helpers ----

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

}  // namespace core

int num_threads() { return core::ThreadPool::instance().num_threads(); }
void set_num_threads(int count) { core::ThreadPool::instance().set_num_threads(count); }

}  // namespace tandem::inline v0

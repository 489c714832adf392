#pragma once

#include <cstdint>
#include <memory>

#include <tandem/core/export.h>
#include <tandem/core/function_ref.h>

namespace tandem::inline v0 {

/// Threads that take part in one op, the calling one included. From TANDEM_NUM_THREADS, else the cores available.
TANDEM_API int num_threads();
/// Throws ConfigError unless 1 <= count <= 256. Results do not depend on it.
TANDEM_API void set_num_threads(int count);

namespace core {

/// The one pool of compute threads in the process.
///
/// Work is cut into chunks by its *size*, never by the number of threads, and chunks are combined in their order: so
/// results are the same bits for any number of threads. Chunks are claimed one by one. Several threads may call at once
/// (replicas): each gets its share of the threads, and none of them helpers when there are as many callers as threads.
/// Idle workers spin for a moment while the process has no more busy threads than cores, then park: on a virtual
/// machine a wake-up costs more than a small step.
class TANDEM_API ThreadPool {
 public:
  /// The one of this process, made at the first call.
  static ThreadPool& instance();

  /// body(k) for every k in [0, chunks), the caller taking part. Returns when all are done; rethrows the exception
  /// of the lowest failing chunk. Called from inside a chunk it runs in that thread alone. One chunk, too, is worth a
  /// call if it takes long: its caller counts as busy meanwhile.
  void for_each_chunk(std::int64_t chunks, FunctionRef<void(std::int64_t)> body);

  /// body(k) for every k in [0, lanes): replicas, devices of a backward pass. Unlike a chunk, a lane may compute with
  /// the pool's threads. Lane 0 is the caller's, the others have a worker each where there are so many, with two
  /// threads the same every time; else one waits for the end of another, so they must not wait for each other. Lanes
  /// within a lane run one by one. Exceptions as above.
  void for_each_lane(std::int64_t lanes, FunctionRef<void(std::int64_t)> body);

  /// See tandem::num_threads().
  int num_threads() const noexcept;
  /// How many of them a call from this thread would get now. For work whose result does not depend on how it is cut.
  int share();
  /// Whether the calling thread had lanes a moment ago, so that what it has just got lies in several cores' caches.
  bool had_lanes();
  /// See tandem::set_num_threads(). Throws ConfigError while an op is running.
  void set_num_threads(int count);

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

 private:
  ThreadPool();
  ~ThreadPool();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Cuts [0, total) into ranges of `grain` (the last may be shorter) and calls body(begin, end) for each, in parallel
/// when there is more than one.
inline void parallel_for(std::int64_t total, std::int64_t grain, FunctionRef<void(std::int64_t, std::int64_t)> body) {
  if (total <= 0) {
    return;
  }
  if (total <= grain) {
    body(0, total);
    return;
  }
  const std::int64_t chunks = (total + grain - 1) / grain;
  ThreadPool::instance().for_each_chunk(chunks, [&](std::int64_t chunk) {
    const std::int64_t begin = chunk * grain;
    body(begin, begin + grain < total ? begin + grain : total);
  });
}

}  // namespace core
}  // namespace tandem::inline v0

#pragma once

#include <cstdint>
#include <memory>

#include <tandem/core/export.h>
#include <tandem/core/function_ref.h>

namespace tandem::inline v0 {

/// Number of threads that take part in one op, including the calling one: TANDEM_NUM_THREADS, or the number of
/// available cores.
TANDEM_API int num_threads();
/// Sets the number of threads. Throws ConfigError unless 1 <= count <= 256. Results do not depend on it.
TANDEM_API void set_num_threads(int count);

namespace core {

/// The process-wide pool of compute threads.
///
/// Work is cut into chunks by its *size*, never by the number of threads, and chunks are combined in order; results are
/// therefore bitwise identical for any number of threads. Threads claim chunks one by one. Several threads may call at
/// once (replicas): each caller gets its share of the threads, and no caller gets a helper when callers are as numerous
/// as threads. Idle workers spin briefly while the process has no more busy threads than cores, then park, because a
/// wake-up on a virtual machine costs more than a small step.
class TANDEM_API ThreadPool {
 public:
  /// The pool of this process, made at the first call.
  static ThreadPool& instance();

  /// Calls body(k) for every k in [0, chunks); the calling thread takes part. Returns when all chunks are done;
  /// rethrows the exception of the lowest failing chunk. A call from inside a chunk runs entirely in that thread. A
  /// single chunk that takes long is worth a call too, because its caller then counts as busy.
  void for_each_chunk(std::int64_t chunks, FunctionRef<void(std::int64_t)> body);

  /// Calls body(k) for every k in [0, lanes); lanes are replicas, or devices of a backward pass. Unlike a chunk, a lane
  /// may compute with the pool's threads. The caller runs lane 0, and each other lane gets a worker if enough exist;
  /// with two threads a lane always gets the same one. Otherwise a lane starts when another ends, so lanes must not
  /// wait for each other. Lanes inside a lane run one by one. Exceptions are handled as in for_each_chunk().
  void for_each_lane(std::int64_t lanes, FunctionRef<void(std::int64_t)> body);

  /// See tandem::num_threads().
  int num_threads() const noexcept;
  /// Number of threads that a call from this thread would get now, for work whose result does not depend on how it is
  /// cut.
  int share();
  /// Whether the calling thread ran lanes a moment ago, in which case its recent data lies in the caches of several
  /// cores.
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

/// Cuts [0, total) into ranges of `grain` (the last may be shorter) and calls body(begin, end) for each. Several ranges
/// run in parallel.
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

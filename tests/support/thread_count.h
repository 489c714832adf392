#pragma once

#include <tandem/core/thread_pool.h>

namespace tandem::test {

/// Sets the pool to `count` threads for a scope.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : saved_(num_threads()) { set_num_threads(count); }
  ~ThreadCount() { set_num_threads(saved_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int saved_;
};

}  // namespace tandem::test

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <random>

#include <fmt/format.h>

#include "emulated_gpu.h"
#include "races/team.h"
#include "report.h"
#include "runner.h"

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace emulated_gpu {

namespace detail {

namespace {

constinit thread_local Runner* runner = nullptr;

// An OS thread owns its runner until its thread-local objects are destroyed. Objects destroyed later may still wait for
// streams and so run kernels. They get a runner that is kept forever, because nothing later could free it.
Runner* make_runner() {
  constinit static thread_local bool ended = false;
  struct OfThread {
    Runner own;
    ~OfThread() {
      runner = nullptr;
      ended = true;
    }
  };
  if (!ended) {
    static thread_local OfThread runner_of_thread;
    return &runner_of_thread.own;
  }
  static std::mutex mutex;
  static auto& kept = *new std::deque<Runner>;
  const std::lock_guard lock(mutex);
  return &kept.emplace_back();
}

void fiber_main() {
  for (;;) {
    runner->work();
    Fiber::suspend();
  }
}

}  // namespace

namespace {

std::uint64_t draw(std::minstd_rand& random) {
  return seed() == 0 ? 0 : (static_cast<std::uint64_t>(random()) << 32) | random();
}

}  // namespace

Blocks::Blocks(const Launch& launch)
    : random(static_cast<std::minstd_rand::result_type>(seed() + 1)),
      count_(static_cast<std::uint64_t>(launch.grid.x) * launch.grid.y * static_cast<std::uint64_t>(launch.grid.z)),
      order_(count_, draw(random)) {}

void Runner::run(const Launch& launch, Blocks& blocks, unsigned member, BlockRaces* races) {
  launch_ = &launch;
  blocks_ = &blocks;
  races_ = races;
  random_ = blocks.random;
  random_.discard(member);
  gridDim = launch.grid;
  blockDim = launch.block;
  count_ = launch.block.x * launch.block.y * launch.block.z;
  // Allocated with exactly this size, so that the address sanitizer detects accesses past the end.
  void* dynamic = nullptr;
  if (posix_memalign(&dynamic, 256, launch.dynamic_shared) != 0) {
    throw std::bad_alloc();
  }
  dynamic_.reset(dynamic);
  if (races_ != nullptr) {
    races_->begin(dynamic);
  }
  while (const auto block = blocks.take()) {
    blockIdx.x = static_cast<unsigned>(*block % launch.grid.x);
    blockIdx.y = static_cast<unsigned>(*block / launch.grid.x % launch.grid.y);
    blockIdx.z = static_cast<unsigned>(*block / launch.grid.x / launch.grid.y);
    std::memset(dynamic, 0xFB, launch.dynamic_shared);
    if (races_ != nullptr) {
      races_->begin_block(*block, count_);
    }
    run_block();
  }
  if (races_ != nullptr) {
    races_->end();
  }
  launch_ = nullptr;
  dynamic_.reset();
}

void Runner::run_block() {
  threads_.assign(count_, Thread());
  meeting_.fill(0);
  left_.fill(0);
  order_ = Order(count_, draw(random_));
  next_ = 0;
  ended_ = 0;
  while (blocks_->error == cudaSuccess) {
    Fiber* fiber = nullptr;
    if (next_ < count_) {
      if (idle_.empty()) {
        fibers_.push_back(std::make_unique<Fiber>(&fiber_main));
        idle_.push_back(fibers_.back().get());
      }
      fiber = idle_.back();
      idle_.pop_back();
    } else if (!ready_.empty()) {
      fiber = threads_[ready_.front()].fiber;
      enter(ready_.front());
      ready_.pop_front();
    } else {
      break;
    }
    finished_work_ = false;
    fiber->resume();
    if (finished_work_) {
      idle_.push_back(fiber);
    }
  }
  if (blocks_->error != cudaSuccess) {
    for (const auto& fiber : fibers_) {
      if (std::find(idle_.begin(), idle_.end(), fiber.get()) == idle_.end()) {
        fiber->restart();
        idle_.push_back(fiber.get());
      }
    }
    ready_.clear();
    at_barrier_.clear();
  } else if (ended_ != count_) {
    die(fmt::format("deadlock: {} of {} threads wait, and none can go on.{}", count_ - ended_, count_, waiters()));
  }
}

// Runs on a fiber: runs threads until one waits. When that thread has resumed and finished, goes on to the next.
void Runner::work() {
  while (next_ < count_) {
    enter(static_cast<unsigned>(order_(next_++)));
    launch_->body();
    end();
  }
  finished_work_ = true;
}

void Runner::enter(unsigned thread) {
  self_ = thread;
  if (races_ != nullptr) {
    races_->self = thread;
  }
  threadIdx.x = thread % blockDim.x;
  threadIdx.y = thread / blockDim.x % blockDim.y;
  threadIdx.z = thread / blockDim.x / blockDim.y;
}

void Runner::wait() {
  threads_[self_].fiber = Fiber::current();
  Fiber::suspend();
}

void Runner::yield() {
  ready_.push_back(self_);
  wait();
}

// In the middle of a thread: lets other threads of the block go on, or other blocks.
void Runner::interrupt() {
  constexpr unsigned kOthers = 4;  // one interrupt in this many is for other blocks
  if (random_() % kOthers != 0) {
    yield();
    return;
  }
  Team::get().pass();
  if (blocks_->error != cudaSuccess) {
    abandon();
  }
}

void Runner::fail(cudaError_t error, const char* why) {
  fmt::print(stderr, "emulated GPU: {}: {}\n", place(), why);
  blocks_->error = error;
  abandon();
}

void Runner::abandon() {
  Fiber::suspend();  // never resumed
  std::abort();
}

namespace {

Runner& running() {
  if (runner == nullptr || !runner->active()) {
    report_and_abort("a function of device code was called outside of a kernel");
  }
  return *runner;
}

}  // namespace

std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* text = std::getenv("EMULATED_GPU_SEED");
    return text == nullptr ? std::uint64_t{1} : std::strtoull(text, nullptr, 10);
  }();
  return value;
}

void run_blocks(const Launch& launch, Blocks& blocks, unsigned member, BlockRaces* races) {
  if (runner == nullptr) {
    runner = make_runner();
    provide_signal_stack();
  }
  runner->run(launch, blocks, member, races);
}

cudaError_t run_kernel(const Launch& launch) {
  if (finds_races()) {
    return Team::get().run(launch);
  }
  Blocks blocks(launch);
  run_blocks(launch, blocks, 0, nullptr);
  return blocks.error;
}

bool in_kernel() { return runner != nullptr && runner->active(); }
std::string place_in_kernel() { return runner != nullptr && runner->active() ? runner->place() : std::string(); }

int barrier(Barrier kind, int predicate, const Location& where) { return running().barrier(kind, predicate, where); }
std::uint64_t warp(Warp kind, unsigned mask, std::uint64_t value, int lane, int width, const Location& where) {
  return running().warp(kind, mask, value, lane, width, where);
}
void yield() { running().yield(); }
void interrupt() { running().interrupt(); }
void fail_kernel(cudaError_t error, const char* why) { running().fail(error, why); }
void assertion_failed(const char* condition, const char* file, unsigned line, const char*) {
  fmt::print(stderr, "emulated GPU: {}:{}: assertion failed: {}\n", file, line, condition);
  fail_kernel(cudaErrorAssert, "an assertion failed");
}

}  // namespace detail

void* dynamic_shared() { return detail::running().dynamic_shared(); }

}  // namespace emulated_gpu

#include "block.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "emulated_gpu.h"
#include "fiber.h"
#include "report.h"

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace emulated_gpu {

namespace detail {

namespace {

constexpr unsigned kWarp = 32;
constexpr std::uint64_t kGarbage = 0xFBFBFBFBFBFBFBFBU;  // what a lane outside of the mask would have given

const char* name_of(Barrier kind) {
  switch (kind) {
    case Barrier::kPlain: return "__syncthreads";
    case Barrier::kCount: return "__syncthreads_count";
    case Barrier::kAnd: return "__syncthreads_and";
    default: return "__syncthreads_or";
  }
}

const char* name_of(Warp kind) {
  switch (kind) {
    case Warp::kSync: return "__syncwarp";
    case Warp::kShuffle: return "__shfl_sync";
    case Warp::kShuffleXor: return "__shfl_xor_sync";
    case Warp::kShuffleUp: return "__shfl_up_sync";
    case Warp::kShuffleDown: return "__shfl_down_sync";
    default: return "a vote (__ballot_sync, __any_sync, __all_sync)";
  }
}

// i -> (factor * i + start) mod count, which visits everything once.
class Order {
 public:
  Order(std::uint64_t count, std::uint64_t random) : count_(count) {
    if (random != 0 && count > 1) {
      start_ = random % count;
      factor_ = 1 + (random >> 32) % (count - 1);
      while (std::gcd(factor_, count) != 1) {
        ++factor_;
      }
    }
  }
  std::uint64_t operator()(std::uint64_t i) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(factor_) * i + start_) % count_);
  }

 private:
  std::uint64_t count_;
  std::uint64_t start_ = 0;
  std::uint64_t factor_ = 1;
};

struct Thread {
  enum class State { kReady, kAtBarrier, kInWarp, kEnded };
  State state = State::kReady;
  Fiber* fiber = nullptr;
  Location where;
  // Of a warp's meeting:
  Warp kind = Warp::kSync;
  unsigned mask = 0;
  int lane = 0;
  int width = 0;
  std::uint64_t value = 0;
  std::uint64_t result = 0;
};

// Runs blocks, and keeps its fibers from one to the next.
class Runner {
 public:
  cudaError_t run(const Launch& launch);

  int barrier(Barrier kind, int predicate, const Location& where);
  std::uint64_t warp(Warp kind, unsigned mask, std::uint64_t value, int lane, int width, const Location& where);
  void yield();
  [[noreturn]] void fail(cudaError_t error, const char* why);
  void* dynamic_shared() { return dynamic_; }
  std::string place() const;
  bool active() const { return launch_ != nullptr; }
  void work();

 private:
  const Launch* launch_ = nullptr;
  std::vector<Thread> threads_;
  Order order_{1, 0};
  unsigned count_ = 0;
  unsigned next_ = 0;  // the first thread, in order_, that has not begun
  unsigned ended_ = 0;
  unsigned self_ = 0;
  std::deque<unsigned> ready_;
  std::vector<unsigned> at_barrier_;
  Barrier barrier_kind_ = Barrier::kPlain;
  int barrier_sum_ = 0;
  int barrier_result_ = 0;
  bool finished_work_ = false;  // the fiber that came back last has nothing more to do
  cudaError_t error_ = cudaSuccess;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::unique_ptr<char[]> dynamic_storage_;
  void* dynamic_ = nullptr;
  std::minstd_rand random_;

  void run_block();
  void enter(unsigned thread);
  void wait();
  void end();
  std::uint64_t random() { return seed() == 0 ? 0 : (static_cast<std::uint64_t>(random_()) << 32) | random_(); }
  bool meeting_complete(unsigned first, unsigned mask);
  void conclude_meeting(unsigned first, unsigned mask);
  std::string name(unsigned thread) const;
  [[noreturn]] void die(const std::string& what) const;
  std::string waiters() const;
};

thread_local std::unique_ptr<Runner> runner;

void fiber_main() {
  for (;;) {
    runner->work();
    Fiber::suspend();
  }
}

cudaError_t Runner::run(const Launch& launch) {
  launch_ = &launch;
  error_ = cudaSuccess;
  random_.seed(static_cast<std::minstd_rand::result_type>(seed() + 1));
  gridDim = launch.grid;
  blockDim = launch.block;
  count_ = launch.block.x * launch.block.y * launch.block.z;
  // Garbage from one byte past its end on is caught by the address sanitizer: no slack behind it.
  constexpr std::size_t kAlign = 256;
  dynamic_storage_.reset(new char[launch.dynamic_shared + kAlign]);
  dynamic_ = dynamic_storage_.get();
  std::size_t space = launch.dynamic_shared + kAlign;
  std::align(kAlign, launch.dynamic_shared, dynamic_, space);
  const std::uint64_t blocks =
      static_cast<std::uint64_t>(launch.grid.x) * launch.grid.y * static_cast<std::uint64_t>(launch.grid.z);
  const Order order(blocks, random());
  for (std::uint64_t i = 0; i < blocks && error_ == cudaSuccess; ++i) {
    const std::uint64_t block = order(i);
    blockIdx.x = static_cast<unsigned>(block % launch.grid.x);
    blockIdx.y = static_cast<unsigned>(block / launch.grid.x % launch.grid.y);
    blockIdx.z = static_cast<unsigned>(block / launch.grid.x / launch.grid.y);
    std::memset(dynamic_, 0xFB, launch.dynamic_shared);
    run_block();
  }
  launch_ = nullptr;
  dynamic_storage_.reset();
  return error_;
}

void Runner::run_block() {
  threads_.assign(count_, Thread());
  order_ = Order(count_, random());
  next_ = 0;
  ended_ = 0;
  while (error_ == cudaSuccess) {
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
  if (error_ != cudaSuccess) {
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

// On a fiber: runs threads until one waits, and when that has gone on to its end, the next.
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

void Runner::end() {
  threads_[self_].state = Thread::State::kEnded;
  ++ended_;
  if (!at_barrier_.empty()) {
    die(fmt::format("barrier divergence: this thread left the kernel while others wait at a barrier.{}", waiters()));
  }
  const unsigned first = self_ / kWarp * kWarp;
  for (unsigned t = first; t < std::min(first + kWarp, count_); ++t) {
    if (threads_[t].state == Thread::State::kInWarp && (threads_[t].mask >> (self_ - first) & 1) != 0) {
      die(fmt::format("this thread left the kernel while {} waits for it in {} (mask {:#010x}) at {}:{}", name(t),
                      name_of(threads_[t].kind), threads_[t].mask, threads_[t].where.file_name(),
                      threads_[t].where.line()));
    }
  }
}

int Runner::barrier(Barrier kind, int predicate, const Location& where) {
  Thread& self = threads_[self_];
  self.where = where;
  if (ended_ != 0) {
    const auto gone = std::find_if(threads_.begin(), threads_.end(),
                                   [](const Thread& t) { return t.state == Thread::State::kEnded; });
    die(fmt::format("barrier divergence: {} at {}:{}, but {} has already left the kernel", name_of(kind),
                    where.file_name(), where.line(), name(static_cast<unsigned>(gone - threads_.begin()))));
  }
  if (at_barrier_.empty()) {
    barrier_kind_ = kind;
    barrier_sum_ = 0;
  } else {
    const Location& other = threads_[at_barrier_.front()].where;
    if (kind != barrier_kind_ || other.line() != where.line() ||
        std::strcmp(other.file_name(), where.file_name()) != 0) {
      die(fmt::format("barrier divergence: this thread is in {} at {}:{}, {} in {} at {}:{}", name_of(kind),
                      where.file_name(), where.line(), name(at_barrier_.front()), name_of(barrier_kind_),
                      other.file_name(), other.line()));
    }
  }
  barrier_sum_ += predicate != 0 ? 1 : 0;
  if (at_barrier_.size() + 1 < count_) {
    self.state = Thread::State::kAtBarrier;
    at_barrier_.push_back(self_);
    wait();
    return barrier_result_;
  }
  const int all = static_cast<int>(count_);
  barrier_result_ = kind == Barrier::kCount ? barrier_sum_
                    : kind == Barrier::kAnd ? static_cast<int>(barrier_sum_ == all)
                                            : static_cast<int>(barrier_sum_ != 0);
  if (seed() != 0) {
    std::shuffle(at_barrier_.begin(), at_barrier_.end(), random_);
  }
  for (const unsigned thread : at_barrier_) {
    threads_[thread].state = Thread::State::kReady;
    ready_.push_back(thread);
  }
  at_barrier_.clear();
  return barrier_result_;
}

std::uint64_t Runner::warp(Warp kind, unsigned mask, std::uint64_t value, int lane, int width, const Location& where) {
  Thread& self = threads_[self_];
  const unsigned first = self_ / kWarp * kWarp;
  const unsigned lanes = std::min(kWarp, count_ - first);
  const auto wrong = [&](const std::string& what) {
    die(fmt::format("{} with mask {:#010x} at {}:{}: {}", name_of(kind), mask, where.file_name(), where.line(), what));
  };
  if ((mask >> (self_ - first) & 1) == 0) {
    wrong("the calling lane is not in the mask");
  }
  if (lanes < kWarp && mask >> lanes != 0) {
    wrong(fmt::format("the mask names lanes that do not exist: this warp has {}", lanes));
  }
  if (width < 1 || width > static_cast<int>(kWarp) || !std::has_single_bit(static_cast<unsigned>(width))) {
    wrong(fmt::format("width {} is not a power of two up to 32", width));
  }
  for (unsigned i = 0; i < lanes; ++i) {
    if ((mask >> i & 1) != 0 && threads_[first + i].state == Thread::State::kEnded) {
      wrong(fmt::format("the mask names {}, which has left the kernel", name(first + i)));
    }
  }
  self.state = Thread::State::kInWarp;
  self.where = where;
  self.kind = kind;
  self.mask = mask;
  self.lane = lane;
  self.width = width;
  self.value = value;
  if (meeting_complete(first, mask)) {
    conclude_meeting(first, mask);
  } else {
    wait();
  }
  return threads_[self_].result;
}

bool Runner::meeting_complete(unsigned first, unsigned mask) {
  const Thread& self = threads_[self_];
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const Thread& other = threads_[first + static_cast<unsigned>(std::countr_zero(rest))];
    if (other.state != Thread::State::kInWarp || other.mask != mask || other.kind != self.kind) {
      return false;
    }
  }
  return true;
}

void Runner::conclude_meeting(unsigned first, unsigned mask) {
  unsigned votes = 0;
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    votes |= threads_[first + static_cast<unsigned>(i)].value != 0 ? 1U << i : 0;
  }
  std::array<unsigned, kWarp> others{};
  std::size_t other_count = 0;
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    Thread& thread = threads_[first + static_cast<unsigned>(i)];
    const int segment = i & ~(thread.width - 1);
    const int place = i - segment;
    int from = i;
    switch (thread.kind) {
      case Warp::kShuffle: from = segment + (thread.lane & (thread.width - 1)); break;
      case Warp::kShuffleXor: from = (i ^ thread.lane) < segment + thread.width ? i ^ thread.lane : i; break;
      case Warp::kShuffleUp: from = place - thread.lane >= 0 ? i - thread.lane : i; break;
      case Warp::kShuffleDown: from = place + thread.lane < thread.width ? i + thread.lane : i; break;
      default: break;
    }
    if (thread.kind == Warp::kBallot) {
      thread.result = votes;
    } else {
      const bool there = from >= 0 && from < static_cast<int>(kWarp) && (mask >> from & 1) != 0;
      thread.result = there ? threads_[first + static_cast<unsigned>(from)].value : kGarbage;
    }
    if (first + static_cast<unsigned>(i) != self_) {
      others[other_count++] = first + static_cast<unsigned>(i);
    }
  }
  if (seed() != 0) {
    std::shuffle(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(other_count), random_);
  }
  threads_[self_].state = Thread::State::kReady;
  for (std::size_t i = 0; i < other_count; ++i) {
    threads_[others[i]].state = Thread::State::kReady;
    ready_.push_back(others[i]);
  }
}

void Runner::fail(cudaError_t error, const char* why) {
  fmt::print(stderr, "emulated GPU: {}: {}\n", place(), why);
  error_ = error;
  Fiber::suspend();  // for good
  std::abort();
}

std::string Runner::name(unsigned thread) const {
  return fmt::format("thread ({},{},{})", thread % blockDim.x, thread / blockDim.x % blockDim.y,
                     thread / blockDim.x / blockDim.y);
}

std::string Runner::place() const {
  return fmt::format("kernel {}, block ({},{},{}), {}", launch_->name, blockIdx.x, blockIdx.y, blockIdx.z, name(self_));
}

std::string Runner::waiters() const {
  constexpr int kShown = 8;
  std::string text;
  int shown = 0;
  for (unsigned t = 0; t < count_; ++t) {
    const Thread& thread = threads_[t];
    if (thread.state != Thread::State::kAtBarrier && thread.state != Thread::State::kInWarp) {
      continue;
    }
    if (++shown > kShown) {
      return text + "\n  ...";
    }
    const bool in_warp = thread.state == Thread::State::kInWarp;
    text += fmt::format(
        "\n  {} waits in {}{} at {}:{}", name(t), in_warp ? name_of(thread.kind) : name_of(barrier_kind_),
        in_warp ? fmt::format(" (mask {:#010x})", thread.mask) : "", thread.where.file_name(), thread.where.line());
  }
  return text;
}

void Runner::die(const std::string& what) const { report_and_abort(place() + ": " + what); }

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

cudaError_t run_kernel(const Launch& launch) {
  if (runner == nullptr) {
    runner = std::make_unique<Runner>();
    provide_signal_stack();
  }
  return runner->run(launch);
}

std::string place_in_kernel() { return runner != nullptr && runner->active() ? runner->place() : std::string(); }

int barrier(Barrier kind, int predicate, const Location& where) { return running().barrier(kind, predicate, where); }
std::uint64_t warp(Warp kind, unsigned mask, std::uint64_t value, int lane, int width, const Location& where) {
  return running().warp(kind, mask, value, lane, width, where);
}
void yield() { running().yield(); }
void fail_kernel(cudaError_t error, const char* why) { running().fail(error, why); }
void assertion_failed(const char* condition, const char* file, unsigned line, const char*) {
  fmt::print(stderr, "emulated GPU: {}:{}: assertion failed: {}\n", file, line, condition);
  fail_kernel(cudaErrorAssert, "an assertion failed");
}

}  // namespace detail

void* dynamic_shared() { return detail::running().dynamic_shared(); }

}  // namespace emulated_gpu

#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "block.h"
#include "device_runtime.h"
#include "fiber.h"
#include "races/oracle.h"

// Runs the threads of a block on one OS thread. runner.cpp switches between threads, meeting.cpp lets them wait for
// each other.

namespace emulated_gpu::detail {

inline constexpr unsigned kWarp = 32;

struct Thread {
  enum class State { kReady, kAtBarrier, kInWarp, kEnded };
  State state = State::kReady;
  Fiber* fiber = nullptr;
  Location where;
  // Used while the thread is at a warp's meeting:
  Warp kind = Warp::kSync;
  unsigned mask = 0;
  int lane = 0;
  int width = 0;
  std::uint64_t value = 0;
  std::uint64_t result = 0;
};

// Runs blocks, and keeps its fibers from one block to the next.
class Runner {
 public:
  void run(const Launch& launch, Blocks& blocks, unsigned member, BlockRaces* races);

  int barrier(Barrier kind, int predicate, const Location& where);
  std::uint64_t warp(Warp kind, unsigned mask, std::uint64_t value, int lane, int width, const Location& where);
  void yield();
  void interrupt();
  [[noreturn]] void fail(cudaError_t error, const char* why);
  void* dynamic_shared() { return dynamic_.get(); }
  std::string place() const;
  bool active() const { return launch_ != nullptr; }
  void work();

 private:
  const Launch* launch_ = nullptr;
  Blocks* blocks_ = nullptr;
  BlockRaces* races_ = nullptr;  // nullptr: accesses are not checked
  std::vector<Thread> threads_;
  // Per warp, with lanes as bits: the values that are read most often.
  std::array<unsigned, kWarp> meeting_{};  // lanes that wait for others of their warp
  std::array<unsigned, kWarp> left_{};     // lanes that have left the kernel
  Order order_{1, 0};
  unsigned count_ = 0;
  unsigned next_ = 0;  // first thread, in order_, that has not started
  unsigned ended_ = 0;
  unsigned self_ = 0;
  std::deque<unsigned> ready_;
  std::vector<unsigned> at_barrier_;
  Barrier barrier_kind_ = Barrier::kPlain;
  int barrier_sum_ = 0;
  int barrier_result_ = 0;
  bool finished_work_ = false;  // the fiber that returned last has nothing more to do
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> dynamic_;
  std::minstd_rand random_;

  void run_block();
  void enter(unsigned thread);
  void wait();
  void end();
  [[noreturn]] void abandon();
  bool meeting_complete(unsigned first, unsigned mask);
  void conclude_meeting(unsigned first, unsigned mask);
  std::string name(unsigned thread) const;
  [[noreturn]] void die(const std::string& what) const;
  std::string waiters() const;
};

}  // namespace emulated_gpu::detail

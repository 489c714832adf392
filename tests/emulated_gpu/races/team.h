#pragma once

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "../arena.h"
#include "../block.h"
#include "oracle.h"

// Runs blocks of a kernel interleaved. Shared memory is thread-local, so each block that is under way has an OS thread.
// Only one of these runs at any time, chosen by the seed.

namespace emulated_gpu::detail {

class Team {
 public:
  static Team& get();

  // Runs the whole grid, on the team's threads. One launch at a time, also of different devices.
  cudaError_t run(const Launch& launch);
  // Called by a member that runs a block: lets a random one go on, and returns when it is the caller's turn again.
  void pass();

 private:
  static constexpr std::size_t kMembers = 4;
  static constexpr std::size_t kNobody = kMembers;
  std::mutex launching_;
  std::mutex mutex_;
  std::array<std::condition_variable, kMembers + 1> turn_came_;  // that of kNobody is for the thread that launches
  std::size_t turn_ = kNobody;
  std::vector<std::size_t> busy_;  // members that have not run out of blocks
  const Launch* launch_ = nullptr;
  Blocks* blocks_ = nullptr;
  OpenRanges ranges_{};  // of the thread that launches
  LaunchRaces launch_races_;
  std::uint32_t random_ = 1;

  Team();
  void serve(std::size_t member);
  void await_turn(std::unique_lock<std::mutex>& lock, std::size_t member);
  void choose();
};

}  // namespace emulated_gpu::detail

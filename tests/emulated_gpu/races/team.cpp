#include "team.h"

#include <algorithm>
#include <thread>

namespace emulated_gpu::detail {

namespace {
constinit thread_local std::size_t own_number = 0;
}

Team& Team::get() {
  static auto& team = *new Team;  // never destroyed: its threads never end
  return team;
}

Team::Team() {
  for (std::size_t member = 0; member < kMembers; ++member) {
    std::thread([this, member] { serve(member); }).detach();
  }
}

void Team::await_turn(std::unique_lock<std::mutex>& lock, std::size_t member) {
  turn_came_[member].wait(lock, [&] { return turn_ == member; });
}

void Team::choose() {
  turn_ = kNobody;
  if (!busy_.empty()) {
    random_ = random_ * 1664525 + 1013904223;
    turn_ = busy_[(random_ >> 16) % busy_.size()];
  }
  turn_came_[turn_].notify_one();
}

void Team::serve(std::size_t member) {
  own_number = member;
  BlockRaces races(launch_races_);
  std::unique_lock lock(mutex_);
  for (;;) {
    await_turn(lock, member);
    lock.unlock();
    set_open_ranges(ranges_);
    run_blocks(*launch_, *blocks_, static_cast<unsigned>(member), &races);
    set_open_ranges({});
    lock.lock();
    std::erase(busy_, member);
    choose();
  }
}

void Team::pass() {
  std::unique_lock lock(mutex_);
  choose();
  await_turn(lock, own_number);
}

cudaError_t Team::run(const Launch& launch) {
  const std::lock_guard one_launch(launching_);
  Blocks blocks(launch);
  std::unique_lock lock(mutex_);
  launch_ = &launch;
  blocks_ = &blocks;
  ranges_ = open_ranges();
  launch_races_.begin(launch);
  random_ = static_cast<std::uint32_t>(seed());
  for (std::size_t member = 0; member < std::min<std::uint64_t>(kMembers, blocks.count()); ++member) {
    busy_.push_back(member);
  }
  choose();
  await_turn(lock, kNobody);
  return blocks.error;
}

}  // namespace emulated_gpu::detail

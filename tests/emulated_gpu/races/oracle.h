#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../block.h"
#include "clock.h"
#include "shadow.h"

// Finds data races: two accesses to a byte of device or shared memory, at least one of them a write, that no
// synchronisation orders. GCC's -fsanitize=thread makes kernels call hooks.cpp before each access.

namespace emulated_gpu::detail {

// Whether kernels that run from now on are checked.
bool finds_races();

// The code that made an access.
const char* code_of(const Record& record);

// State that the blocks of one launch share. Blocks take turns, so only one thread uses it at a time.
struct LaunchRaces {
  void begin(const Launch& of);

  const Launch* launch = nullptr;
  std::uint32_t stamp = 0;
  bool fenced = false;                // a thread has had a fence: until then there is nothing to hand on
  std::map<const void*, View> views;  // what strong accesses to device memory hand on
};

// The oracle of an OS thread that runs blocks.
class BlockRaces {
 public:
  explicit BlockRaces(LaunchRaces& launch);  // called on that thread
  // `dynamic` is the shared memory that blocks of the launch get.
  void begin(const void* dynamic);
  void begin_block(std::uint64_t block, unsigned threads);
  void end();

  BlockClock clock;
  unsigned self = 0;  // the thread of the block that runs

  void access(const void* address, std::size_t size, Access access, const void* site);
  // An atomic one, or one to a volatile. Hands on what fences have told.
  void strong_access(const void* address, std::size_t size, bool loads, bool stores, const void* site);
  void fence(Scope scope);

 private:
  LaunchRaces& launch_;
  std::uint64_t block_ = 0;
  std::uint32_t stamp_ = 0;                              // of this block's shared memory
  std::map<const void*, View> views_;                    // as in LaunchRaces, for shared memory
  const std::vector<std::unique_ptr<Shadow>>& devices_;  // whose memory stays where it is
  Shadow static_;
  Shadow dynamic_;
  std::uint32_t random_ = 1;
  unsigned until_interrupt_ = 1;

  struct Place {
    Shadow* shadow = nullptr;  // nullptr for host memory
    bool shared = false;
  };
  Place find(const void* address);
  void maybe_interrupt();
  [[noreturn]] void report(const Place& place, const char* address, std::size_t size, Access access, const void* site,
                           const Conflict& conflict) const;
};

// Belongs to the calling OS thread while that runs a kernel that is checked; else nullptr.
extern constinit thread_local BlockRaces* block_races;

}  // namespace emulated_gpu::detail

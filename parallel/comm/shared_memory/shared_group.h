#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <tandem/core/function_ref.h>
#include <tandem/parallel/comm/collective.h>
#include <tandem/parallel/comm/shared_memory/shared_memory.h>

// Internal: operations of the ranks of one host in shared memory.
//
// To meet, each rank increases a number in its own part and waits until the other ranks' numbers are as high. A
// comparison of calls is one meeting: a rank writes its call before the meeting and reads the others' calls after it.
//
// An all-reduce runs in rounds with a meeting after each. In round k a rank does three things. It writes the values of
// piece k (1 MiB) that the others need. It combines its slice of piece k - 1, whose values the others wrote in the
// previous round. It reads the slices of piece k - 2 that the others have combined. Three places for pieces, used in
// turn, are enough.
//
// Memory cannot show that a rank has died. So a waiting rank calls a function of its backend every 5 ms to check that
// the others are still alive; this function ends the wait by throwing.

namespace tandem::inline v0::parallel {

/// One rank's end of the group. All ranks make the same calls in the same order. Ranks are numbered within the host.
class SharedGroup {
 public:
  /// Called repeatedly while this rank waits for another. Throws if the other rank will not come. `is_long` is true
  /// once, when the wait has become long.
  using LookAfter = core::FunctionRef<void(bool is_long)>;
  /// Receives all ranks' calls; throws if they differ.
  using Compare = core::FunctionRef<void(std::span<const Collective>)>;

  /// Throws IoError if the system has no memory to share.
  SharedGroup(int rank, int size);

  SharedMemory& memory() noexcept { return memory_; }
  /// Collects every rank's `mine` in `all`.
  void exchange(const Collective& mine, std::span<Collective> all, const CallTime& time, LookAfter look_after);
  /// For a planned call, `compare` runs before anything is written to `buffers.out`. A rank whose `out` is null gets no
  /// result.
  void all_reduce(const Collective& call, const Buffers& buffers, const CallTime& time, LookAfter look_after,
                  Compare compare);
  /// Copies rank 0's memory to the other ranks.
  void broadcast(void* data, std::size_t bytes, const CallTime& time, LookAfter look_after);

 private:
  std::byte* place(int rank, std::size_t piece) const;
  void meet(const CallTime& time, LookAfter look_after);
  void read_notes(std::span<Collective> all) const;

  int rank_;
  int size_;
  SharedMemory memory_;
  std::size_t pieces_ = 0;         // number of pieces that have gone through the memory
  std::vector<Collective> calls_;  // one for each rank, for one call
  std::vector<const void*> from_;  // one for each rank, for one call
};

}  // namespace tandem::inline v0::parallel

#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tandem/core/function_ref.h>
#include <tandem/parallel/comm/collective.h>

// Internal: memory shared by the ranks of one host, and their operations in it.
//
// Each rank creates a part with memfd_create() and mails the others its process id and descriptor. The others open the
// part through /proc, compare its size and a random mark in it with the mail, and map it. Once all ranks have done so,
// the descriptors are closed. Only mappings remain: they disappear with the last process, however the ranks end.
//
// To meet, each rank increases a number in its own part and waits until the other ranks' numbers are as high. A
// comparison of calls is one meeting: a rank writes its call before the meeting and reads the others' calls after it.
//
// An all-reduce runs in rounds with a meeting after each. In round k a rank does three things. It writes the values of
// piece k (1 MiB) that the others need. It combines its slice of piece k - 1, whose values the others wrote in the
// previous round. It reads the slices of piece k - 2 that the others have combined. Three places for pieces, used in
// turn, are enough. A reduce-scatter ends with the second of these steps, and an all-gather has the first and the last.
//
// Memory cannot show that a rank has died. So a waiting rank calls a function of its backend every 5 ms to check that
// the others are still alive; this function ends the wait by throwing.

namespace tandem::inline v0::parallel {

/// One part for each rank of this host, which that rank writes and all read. Ranks are numbered within the host.
class SharedMemory {
 public:
  /// The location of a part, and the marks that identify it.
  struct Address {
    std::int64_t pid = 0;
    std::int32_t descriptor = -1;
    std::uint32_t bytes = 0;
    std::array<char, 64> cookie{};  // random bytes at the start of the part
  };

  /// Creates this rank's part with `bytes` bytes. Throws IoError if the system has no memory for it.
  SharedMemory(int rank, int size, std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  const Address& address() const noexcept { return address_; }
  /// Returns false if this process may not access the part, or sees none there.
  bool open(int rank, const Address& address);
  /// All ranks have opened the part: from now on no other process can.
  void seal() noexcept;
  /// The memory of a rank's part, page-aligned.
  std::byte* part(int rank) const noexcept { return parts_[static_cast<std::size_t>(rank)] + kHead; }

  /// Increases this rank's number of arrivals. Ranks that wait for it see all of its earlier writes.
  void arrive() noexcept;
  /// Whether that rank has arrived as often as this one.
  bool has_come(int rank) const noexcept;
  /// Waits until has_come(rank). Stays awake for `patience` as long as no other thread wants the core. Returns false at
  /// the deadline.
  bool wait_for(int rank, std::chrono::steady_clock::time_point deadline,
                std::chrono::steady_clock::duration patience) const noexcept;
  /// This rank's note for the others, written before an operation of all ranks: up to kNote bytes, valid until the
  /// operation after the next one.
  std::byte* own_note() noexcept;
  /// Another rank's note, valid after both ranks have arrived.
  const std::byte* note(int rank) const noexcept;
  static constexpr std::size_t kNote = 1024;

 private:
  struct Head;
  static constexpr std::size_t kHead = 4096;

  Head& head(int rank) const noexcept { return *reinterpret_cast<Head*>(parts_[static_cast<std::size_t>(rank)]); }
  std::byte* map(int descriptor) const noexcept;

  int rank_;
  std::size_t bytes_;
  std::uint64_t notes_ = 0;
  Address address_;
  std::vector<std::byte*> parts_;
};

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
  /// Whether run() can run calls of that kind.
  static bool takes(CollectiveKind kind) noexcept;
  /// An all-reduce, reduce-scatter or all-gather. For a planned call, `compare` runs before anything is written to
  /// `buffers.out`. A rank whose `out` is null gets no result of an all-reduce.
  void run(const Collective& call, const Buffers& buffers, const CallTime& time, LookAfter look_after, Compare compare);
  /// Copies rank 0's memory to the other ranks.
  void broadcast(void* data, std::size_t bytes, const CallTime& time, LookAfter look_after);

 private:
  /// A slice of a piece: where it lies in the caller's memory and in a place, in bytes, and its elements.
  struct SliceOfPiece {
    std::size_t begin, in_place;
    std::int64_t count;
  };
  /// The elements that one rank, or in an all-reduce all ranks together, have in a piece.
  std::int64_t elements_of_piece(const Collective& call) const;
  /// The slice of that rank. All slices of an all-reduce lie side by side; otherwise each rank's lies in its part.
  SliceOfPiece slice(const Collective& call, std::int64_t numel, int rank, std::size_t piece) const;
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

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/cuda_stream.h>
#include <tandem/core/error.h>
#include <tandem/core/spin.h>
#include <tandem/parallel/comm/collective.h>
#include <tandem/parallel/comm/group_names.h>
#include <tandem/parallel/comm/waiting.h>
#include <tandem/tensor/view.h>

// Internal: state shared by the ranks of one process. Ranks read each other's memory, so no rank may leave a call, even
// by an error, while another rank may still be reading.

namespace tandem::inline v0::parallel {

/// The threads that spawn() started together. Ranks of the world are the ranks of the first group.
class LocalWorld {
 public:
  explicit LocalWorld(int size) : gone_(static_cast<std::size_t>(size)), how_(gone_.size()) {}

  /// Called once per rank: its function has ended; `how` is "ended" or "threw: ...". Wakes all ranks that wait for it,
  /// in any group.
  void leave(int rank, std::string how);
  /// Whether the rank has left; how_it_left() then tells how.
  bool has_left(int rank) const { return gone_[static_cast<std::size_t>(rank)].load(); }
  const std::string& how_it_left(int rank) const { return how_[static_cast<std::size_t>(rank)]; }
  int size() const noexcept { return static_cast<int>(gone_.size()); }
  /// Threads of all the world's groups wait here.
  ParkingLot& lot() noexcept { return lot_; }

 private:
  ParkingLot lot_;
  std::vector<std::atomic<bool>> gone_;
  std::vector<std::string> how_;  // written before the rank is gone
};

inline bool on_gpu(const Buffers& buffers) { return buffers.device.type == DeviceType::cuda; }

/// A message that send() leaves for a rank until it is received.
struct LocalMessage {
  Collective call;
  int from = 0;
  tandem::detail::View data{};
  std::unique_ptr<cuda::Stream> stream{};  // made the copy on a GPU; receivers order it after their reads
};

/// The side of a rank that the other ranks see.
class alignas(128) LocalSlot {
 public:
  /// The rank's call at a meeting. Two notes alternate: a rank can be at most one meeting ahead of a rank that still
  /// reads the previous note.
  struct Note {
    bool moves_data = false;  // true for run(), false for exchange()
    Collective call;
    Buffers buffers;
  };
  std::atomic<std::uint64_t> arrived{0};  // number of meetings so far
  std::atomic<bool> looking{false};       // whether it uses other ranks' memory
  std::atomic<bool> left{false};          // whether its backend was destroyed
  std::atomic<std::uint64_t> posts{0};    // number of messages to the rank so far

  /// The note for that meeting.
  Note& note(std::uint64_t meeting) { return notes_[meeting & 1]; }

  /// Positions in the stream of a rank on a GPU that other ranks' streams wait for. The rank records a mark after the
  /// meeting until which others may use the previous one, and before the meeting from which on they use the new one.
  struct Marks {
    explicit Marks(Device device) : given(device), done(device) {}
    cuda::Event given;  // the rank's input is ready
    cuda::Event done;   // the rank's share of the work is done
  };
  /// Used by the rank itself, for work on that GPU. Creates the marks at first use.
  Marks own_marks(Device gpu);
  /// Used by other ranks; empty if the rank has no marks.
  std::optional<Marks> marks();

  /// Leaves a message for the rank.
  void post(LocalMessage message);
  /// Whether fetch() would return a message.
  bool has_message(int from, int tag);
  /// Removes the first message from `from` with that tag.
  std::optional<LocalMessage> fetch(int from, int tag);

 private:
  std::deque<LocalMessage>::iterator find(int from, int tag);

  Note notes_[2];
  core::SpinLock lock_;  // guards the members below
  std::optional<Marks> marks_;
  std::deque<LocalMessage> messages_;
};

/// The part of a group that the backends of its ranks share.
class LocalGroup {
 public:
  /// `members` are ranks of the world.
  LocalGroup(std::shared_ptr<LocalWorld> world, std::vector<int> members);

  int size() const noexcept { return static_cast<int>(members_.size()); }
  int world_rank(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  /// New names for a rank's backend.
  std::shared_ptr<GroupNames> names() const {
    return size() == world_->size() ? std::make_shared<GroupNames>() : std::make_shared<GroupNames>(members_);
  }
  LocalWorld& world() noexcept { return *world_; }
  ParkingLot& lot() noexcept { return world_->lot(); }
  LocalSlot& slot(int rank) { return slots_[static_cast<std::size_t>(rank)]; }

  /// Whether the rank will never arrive again.
  bool is_lost(int rank) { return slot(rank).left.load() || world_->has_left(world_rank(rank)); }
  /// The reason as text: "its function threw: ...".
  std::string why_lost(int rank);

  /// Records the group's error. The first error of any rank counts for all; later ones are dropped.
  void fail(const CommError& error);
  bool has_failed() const { return failed_.load(); }
  [[noreturn]] void throw_failure() const;
  std::optional<CommError> failure() const;

  /// Returns the same new group to each of the `members`, which all ask at the same meeting.
  std::shared_ptr<LocalGroup> subgroup(std::uint64_t meeting, std::span<const int> members);

 private:
  struct Subgroup {
    std::shared_ptr<LocalGroup> group;
    std::size_t taken = 0;
  };

  std::shared_ptr<LocalWorld> world_;
  std::vector<int> members_;
  std::vector<LocalSlot> slots_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;  // guards the two members below
  std::optional<CommError> failure_;
  std::map<std::uint64_t, Subgroup> subgroups_;
};

}  // namespace tandem::inline v0::parallel

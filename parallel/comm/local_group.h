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
#include <tandem/parallel/comm/parking_lot.h>
#include <tandem/tensor/view.h>

// Internal: what the ranks of one process share. Ranks look at each other's memory, so none may leave a call, by
// whatever error, while another one might still be looking.

namespace tandem::inline v0::parallel {

/// The threads that spawn() started together. Its ranks are those of the first group.
class LocalWorld {
 public:
  explicit LocalWorld(int size) : gone_(static_cast<std::size_t>(size)) {}

  /// The rank's function has ended; `how` is "ended" or "threw: ...". Wakes all who wait for it, in any group.
  void leave(int rank, std::string how);
  /// Whether it has; then how_it_left() says how.
  bool has_left(int rank) const { return gone_[static_cast<std::size_t>(rank)].load(); }
  std::string how_it_left(int rank) const;
  int size() const noexcept { return static_cast<int>(gone_.size()); }
  /// Where the threads of all its groups wait.
  ParkingLot& lot() noexcept { return lot_; }

 private:
  ParkingLot lot_;
  std::vector<std::atomic<bool>> gone_;
  mutable std::mutex mutex_;
  std::map<int, std::string> how_;
};

/// What a rank shows to the others.
struct alignas(128) LocalSlot {
  /// What it came with. Two, in turns: a rank can be at most one meeting ahead of who still reads the last.
  struct Note {
    bool moves_data = false;  // run(), not exchange()
    Collective call;
    Buffers buffers;
  };
  std::atomic<std::uint64_t> arrived{0};  // at how many meetings
  std::atomic<bool> looking{false};       // at others' memory
  std::atomic<bool> left{false};          // its backend was destroyed
  Note notes[2];

  /// Of a rank on a GPU: where its stream has got what the others' wait for. It records each between the meeting until
  /// which the others may look at the last one, and that from which on they look at this.
  struct Marks {
    explicit Marks(Device device) : given(device), done(device) {}
    cuda::Event given;  // what it came with is there
    cuda::Event done;   // its share of the work is
  };
  /// Its own, for work on that GPU.
  Marks own_marks(Device gpu);
  /// Without any, an empty one.
  std::optional<Marks> marks();

  /// What it came with at that meeting.
  Note& note(std::uint64_t meeting) { return notes[meeting & 1]; }

 private:
  core::SpinLock lock_;
  std::optional<Marks> marks_;
};

/// What send() leaves for a rank, until it is fetched.
struct LocalMessage {
  Collective call;
  int from = 0;
  std::unique_ptr<std::byte[]> data{};
  /// The data of a GPU, and the stream that made the copy, which is behind all who read it.
  struct OnGpu {
    tandem::detail::View data;
    cuda::Stream stream;
  };
  std::unique_ptr<OnGpu> on_gpu{};
};

/// The part of a group that its ranks' backends share.
class LocalGroup {
 public:
  /// `members`: ranks of the world.
  LocalGroup(std::shared_ptr<LocalWorld> world, std::vector<int> members);

  int size() const noexcept { return static_cast<int>(members_.size()); }
  int world_rank(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  LocalWorld& world() noexcept { return *world_; }
  ParkingLot& lot() noexcept { return world_->lot(); }
  LocalSlot& slot(int rank) { return slots_[static_cast<std::size_t>(rank)]; }

  /// Whether the rank will not come any more.
  bool is_lost(int rank) { return slot(rank).left.load() || world_->has_left(world_rank(rank)); }
  /// "its function threw: ...".
  std::string why_lost(int rank);

  /// The first error of any rank, which is everybody's. The others are forgotten.
  void fail(const CommError& error);
  bool has_failed() const { return failed_.load(); }
  [[noreturn]] void throw_failure() const;
  std::optional<CommError> failure() const;

  void post(int to, LocalMessage message);
  /// How many were posted to it so far.
  std::uint64_t posts(int to) const { return mailboxes_[static_cast<std::size_t>(to)].posts.load(); }
  /// Whether fetch() would find one.
  bool has_message(int to, int from, int tag);
  /// The first message from that rank with that tag.
  std::optional<LocalMessage> fetch(int to, int from, int tag);

  /// The same new group for each of the `members` who asks; they ask at the same meeting.
  std::shared_ptr<LocalGroup> subgroup(std::uint64_t meeting, std::span<const int> members);

 private:
  struct Mailbox {
    core::SpinLock lock;
    std::deque<LocalMessage> messages;
    std::deque<LocalMessage>::iterator find(int from, int tag);
    std::atomic<std::uint64_t> posts{0};
  };
  struct Subgroup {
    std::shared_ptr<LocalGroup> group;
    std::size_t taken = 0;
  };

  std::shared_ptr<LocalWorld> world_;
  std::vector<int> members_;
  std::unique_ptr<LocalSlot[]> slots_;
  std::unique_ptr<Mailbox[]> mailboxes_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;  // around the two below
  std::optional<CommError> failure_;
  std::map<std::uint64_t, Subgroup> subgroups_;
};

}  // namespace tandem::inline v0::parallel

#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/comm/threads/local_group.h>

namespace tandem::inline v0::parallel {

/// Ranks as threads of one process, on any devices. Each rank publishes the address of its memory. In a reduction, rank
/// r reduces slice r over all ranks in their order and writes the result to all, so every rank gets the same bits
/// regardless of timing. send() leaves a copy and never waits.
///
/// On GPUs the ranks' streams wait for each other where their threads do, and no thread waits for a GPU. Ranks may
/// share a GPU. Data on other GPUs is copied by the driver, directly from GPU to GPU where they can access each other's
/// memory.
class LocalBackend final : public Backend {
 public:
  LocalBackend(std::shared_ptr<LocalGroup> group, int rank);
  ~LocalBackend() override;

  std::string_view name() const noexcept override { return "local"; }
  bool shares_memory() const noexcept override { return true; }
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return group_->size(); }
  std::string refusal(const Collective& call) const override;
  void exchange(const Collective& mine, std::span<Collective> all, const CallTime& time) override;
  void run(const Collective& call, const Buffers& buffers, const CallTime& time) override;
  std::unique_ptr<Backend> split(std::span<const int> members, const CallTime& time) override;
  bool await_message(const Collective& call, const CallTime& time) override;
  void interrupt() noexcept override;
  void abort(const CommError& cause) noexcept override { group_->fail(cause); }
  std::optional<CommError> failure() const override { return group_->failure(); }

 private:
  /// Waits for `done` until the deadline. Returns false whenever a line about the wait is due.
  template <class Done>
  bool wait(const CallTime& time, const Done& done) {
    if (group_->lot().wait(std::min(time.deadline, time.line_due), patience_of(time, group_->world().size()), done)) {
      return true;
    }
    const auto now = ParkingLot::Clock::now();
    time.put_off_line(now);
    return now >= time.deadline;
  }
  void meet(const Collective& call, const Buffers& buffers, bool moves_data, const CallTime& time);
  void compare_calls(const CallTime& time);
  void run_together(const Collective& call, const Buffers& buffers, const CallTime& time);
  void move_data(const Collective& call, const Buffers& buffers);
  void reduce(const Collective& call, const Buffers& buffers);
  void combine_on_gpu(const Collective& call, Device gpu, std::int64_t count);
  void fetch(void* to, int rank, const void* from, std::int64_t bytes);
  void wait_for_streams(const Buffers& buffers, cuda::Event LocalSlot::Marks::* mark);
  void leave_memory_alone(const Buffers& buffers);
  void send(const Collective& call, const Buffers& buffers, const CallTime& time);
  void receive(const Collective& call, const Buffers& buffers, const CallTime& time);
  [[noreturn]] void fail(const CommError& error);
  Awaited late(int peer, std::uint64_t last);
  LocalSlot& own() { return group_->slot(rank_); }
  const LocalSlot::Note& note(int rank) { return group_->slot(rank).note(meeting_); }

  std::shared_ptr<LocalGroup> group_;
  int rank_;
  std::atomic<bool> interrupted_{false};
  std::uint64_t meeting_ = 0;      // number of this rank's last meeting
  std::vector<const void*> from_;  // from_ and to_: all ranks' addresses during one call
  std::vector<void*> to_;
  std::vector<Device> to_devices_;
};

namespace detail {
/// Makes a group of these ranks of `world`, in ascending order.
std::vector<std::unique_ptr<ProcessGroup>> local_groups(const std::shared_ptr<LocalWorld>& world,
                                                        const std::vector<int>& members,
                                                        const ProcessGroupOptions& options);
}  // namespace detail

}  // namespace tandem::inline v0::parallel

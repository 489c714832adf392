#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tandem/core/device.h>
#include <tandem/core/error.h>
#include <tandem/core/export.h>
#include <tandem/parallel/comm/collective.h>
#include <tandem/parallel/comm/group_names.h>

namespace tandem::inline v0::parallel {

/// Carries the data of a process group. ProcessGroup does everything else: it checks tensors, packs those that are not
/// dense, keeps the order of calls, compares calls across ranks through exchange(), and spreads errors through abort().
///
/// One object per rank. All functions except abort(), failure(), interrupt() and the destructor are called by one
/// thread at a time, which may change from call to call. A blocking function ends at `time.deadline` by throwing
/// CommError (timeout), and soon after abort() or the loss of a peer. A function that throws no longer uses any memory
/// it was given, on any rank.
///
/// GPU memory is used in the order of the calling thread's current stream of that GPU. Work queued there before run()
/// has produced the input, and work queued there after run() returns sees the call done. The host need not wait for the
/// GPU. A call that throws no longer uses the memory in the same sense: for work queued later.
class TANDEM_API Backend {
 public:
  explicit Backend(std::shared_ptr<GroupNames> names = std::make_shared<GroupNames>()) : names_(std::move(names)) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// How texts name the group's ranks and calls.
  const std::shared_ptr<GroupNames>& names() const noexcept { return names_; }
  /// The name of the backend: "local", ...
  virtual std::string_view name() const noexcept = 0;
  /// The rank of the calling process or thread in this group, from 0.
  virtual int rank() const noexcept = 0;
  /// The number of ranks.
  virtual int size() const noexcept = 0;

  /// Whether data passes through memory that the ranks share. If so, no wire transfers data while the ranks compute.
  virtual bool shares_memory() const noexcept { return false; }
  /// The GPU whose tensors the backend takes, if it was made for one GPU.
  virtual std::optional<Device> gpu() const { return std::nullopt; }
  /// Empty if the backend can run such a call; looks at kind, dtype, device and op. Otherwise the text says what would
  /// work: "move the tensor to the CPU with .to(\"cpu\")".
  virtual std::string refusal(const Collective& call) const = 0;
  /// Puts every rank's `mine` into `all`, in the order of ranks.
  virtual void exchange(const Collective& mine, std::span<Collective> all, const CallTime& time) = 0;
  /// Runs the call, of any kind except new_group. The ranks' calls of a collective have been compared before. send and
  /// recv are compared here: dtype and shape, after matching a message by sender and tag. Reductions give the same bits
  /// on all ranks. One call may be run in several pieces, one after another and the same on all ranks: `buffers.numel`
  /// is the size of the piece.
  virtual void run(const Collective& call, const Buffers& buffers, const CallTime& time) = 0;
  /// Waits until run() of this recv would not wait for its peer: the message has arrived, or an error is due. Returns
  /// false if interrupt() came first. A backend that cannot tell returns true, and later sends then wait for run().
  virtual bool await_message(const Collective& /*call*/, const CallTime& /*time*/) { return true; }
  /// Ends await_message(), or the next one if none is running. May be called from any thread; never waits.
  virtual void interrupt() noexcept {}
  /// The backend of a group of these ranks, in ascending order: rank members[k] has rank k there. Every rank calls it
  /// with the same members. Returns null on ranks that are not members.
  virtual std::unique_ptr<Backend> split(std::span<const int> members, const CallTime& time) = 0;
  /// Makes the running call and all later ones, on every rank, throw `cause`, or an earlier cause if there was one. May
  /// be called from any thread.
  virtual void abort(const CommError& cause) noexcept = 0;
  /// The error that ended the group, on whatever rank, as far as this rank knows. Code that waits for something else,
  /// such as a GPU, polls it. May be called from any thread at any time; never waits.
  virtual std::optional<CommError> failure() const { return std::nullopt; }

 private:
  std::shared_ptr<GroupNames> names_;
};

/// Makes `host`, which carries CPU tensors, carry GPU tensors as well. These are copied to page-locked memory, sent
/// like CPU tensors and copied back. Large ones go in pieces, so that copies and network overlap. CPU tensors go
/// unchanged. Ranks may therefore share a GPU, or have none. The caller's thread, or the group's, waits for the copies
/// from the GPU; no thread waits for the copies to the GPU.
TANDEM_API std::unique_ptr<Backend> staged_backend(std::unique_ptr<Backend> host);

}  // namespace tandem::inline v0::parallel

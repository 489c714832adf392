#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tandem/core/device.h>
#include <tandem/core/error.h>
#include <tandem/core/export.h>
#include <tandem/parallel/comm/collective.h>

namespace tandem::inline v0::parallel {

/// What carries a process group's data. ProcessGroup does everything else: it looks at tensors, packs what is not
/// dense, keeps the order of calls, compares them across ranks through exchange(), and spreads errors through abort().
///
/// One object per rank. All but abort(), failure(), interrupt() and the destructor are called by one thread at a time,
/// which need not always be the same. Whatever blocks ends at `time.deadline` by throwing CommError (timeout), and soon
/// after abort() or the loss of a peer. A function that throws is done with all memory it was given, on every rank.
///
/// Memory of a GPU is used in the order of the calling thread's current stream of that GPU: what is queued there when
/// run() is called has made the input, and what is queued there once it has returned finds the call done. Nobody need
/// wait for the GPU. What has thrown is done with memory in the same sense.
class TANDEM_API Backend {
 public:
  virtual ~Backend() = default;
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// "local", ...
  virtual std::string_view name() const noexcept = 0;
  /// Of the calling process or thread in this group, from 0.
  virtual int rank() const noexcept = 0;
  /// How many ranks there are.
  virtual int size() const noexcept = 0;

  /// Whether data goes from rank to rank through memory that they share: there is no wire that could be busy while they
  /// compute.
  virtual bool shares_memory() const noexcept { return false; }
  /// The one GPU whose tensors it takes, where it is made for one.
  virtual std::optional<Device> gpu() const { return std::nullopt; }
  /// Empty if it can run such a call (kind, dtype, device and op are looked at); else what would work, as in "move the
  /// tensor to the CPU with .to(\"cpu\")".
  virtual std::string refusal(const Collective& call) const = 0;
  /// Every rank's `mine` in `all`, in the order of ranks.
  virtual void exchange(const Collective& mine, std::span<Collective> all, const CallTime& time) = 0;
  /// Does it: any kind but new_group. Ranks of a collective have been compared; those of send and recv are compared
  /// here (dtype and shape; a message is taken by its sender and tag). Reductions give the same bits on all ranks.
  /// One call may come in several pieces, one after another and the same on all ranks: `buffers.numel` says how much of
  /// the call's shape is meant.
  virtual void run(const Collective& call, const Buffers& buffers, const CallTime& time) = 0;
  /// Waits until run() of this recv would not wait for its peer: its message is there, or an error is due. False if
  /// interrupt() came first. A backend that cannot say so returns true, and what is sent later waits for run().
  virtual bool await_message(const Collective& /*call*/, const CallTime& /*time*/) { return true; }
  /// Ends await_message(), or the next one where none is going on. From any thread; never waits.
  virtual void interrupt() noexcept {}
  /// The backend of a group of these ranks, ascending: that of rank members[k] has rank k there. Every rank calls it,
  /// with the same members; null for one who is not among them.
  virtual std::unique_ptr<Backend> split(std::span<const int> members, const CallTime& time) = 0;
  /// Makes what runs now, on any rank, and all that comes later throw `cause`, or what was first. From any thread.
  virtual void abort(const CommError& cause) noexcept = 0;
  /// What has ended the group, on whatever rank, as far as is known here: so that who waits for something else, such as
  /// a GPU, learns of it. From any thread, at any time; never waits.
  virtual std::optional<CommError> failure() const { return std::nullopt; }
};

}  // namespace tandem::inline v0::parallel

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/function_ref.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/hosts/messages.h>
#include <tandem/parallel/comm/shared_memory/shared_memory.h>
#include <tandem/parallel/comm/transport_gloo/setup.h>

// Internal: collectives between ranks on any hosts, over a Wire.
//
//   compare   Each rank sends every other rank a mail that names its call, and reads the mails of the others.
//   short     Up to 64 KiB travel in the call's own mails: one trip, no answer. These mails also name the call, so
//   planned
//             calls, which are not compared beforehand, are compared here.
//   long      Tensors are cut into one slice for each rank. Rank r gets slice r of all ranks in segments of 512 KiB,
//             combines one segment while the next one travels, and sends the result to all. A broadcast goes out in
//             slices that the other ranks pass on to each other.
//   one host  If all ranks are on one host, comparisons, all-reduces, reduce-scatters and all-gathers
//             use shared memory: one_host.cpp.
//   by hosts  If several hosts have several ranks, each host's ranks reduce in shared memory, and its lowest rank, the
//             leader, reduces with the other leaders as above: one_host.cpp, too.
//   send      Messages are copied and travel separately: messages.h.
//
// A rank that waits for a collective's mail puts earlier messages aside. Any other mail means that the ranks made
// different calls, and ends the group. wire.h describes how failures spread. A leaving rank waits up to 5 s until its
// messages have been received, says goodbye, and waits up to 0.5 s for the others' goodbyes: closing the connections
// would lose data that is still in the network.

namespace tandem::inline v0::parallel {

/// The backend that gloo_backend() returns.
class HostsBackend final : public Backend {
 public:
  /// Connects to the other ranks, see connect_wire(). A collective.
  HostsBackend(GlooOptions options, std::shared_ptr<gloo::transport::Device> device, const CallTime& time,
               std::shared_ptr<GroupNames> group_names, bool is_first);
  ~HostsBackend() override;

  std::string_view name() const noexcept override { return "gloo"; }
  bool shares_memory() const noexcept override { return shared_ != nullptr && leaders_.size() == 1; }
  int rank() const noexcept override { return wire_->rank(); }
  int size() const noexcept override { return wire_->size(); }
  std::string refusal(const Collective& call) const override;
  void exchange(const Collective& mine, std::span<Collective> all, const CallTime& time) override;
  void run(const Collective& call, const Buffers& buffers, const CallTime& time) override;
  std::unique_ptr<Backend> split(std::span<const int> members, const CallTime& time) override;
  bool await_message(const Collective& call, const CallTime& time) override { return messages_.await({call, time}); }
  void interrupt() noexcept override { wire_->interrupt(); }
  void abort(const CommError& cause) noexcept override { wire_->spread(cause); }
  std::optional<CommError> failure() const override { return wire_->failure(); }

 private:
  struct Part;

  // Mails of collectives.
  void post(Mail::Kind kind, int peer, const void* payload, std::size_t bytes, const CallInProgress& now);
  void post_all(Mail::Kind kind, const void* payload, std::size_t bytes, const CallInProgress& now);
  const Mail& collective_mail(int peer, const CallInProgress& now);
  const Mail& work_mail(int peer, const CallInProgress& now);
  /// Sends a mail to every rank, and reads a mail of equal length from every rank.
  void tell_all(const void* payload, std::size_t bytes, const CallInProgress& now,
                core::FunctionRef<void(int, const Mail&)> hear);
  void note_calls(std::span<const Collective> all);
  [[noreturn]] void fail_different(const CallInProgress& now);
  std::uint64_t data_slots(const CallInProgress& now) const;

  // collectives.cpp
  void move_parts(const Buffers& buffers, const CallInProgress& now);
  Part part_of(int peer, const Buffers& buffers, const Collective& call) const;
  void broadcast(const Buffers& buffers, const CallInProgress& now);
  void reduce(const Buffers& buffers, const CallInProgress& now);
  /// Reduces values of `ranks`, in their order. `how` is the call, or a call on other values that serves it.
  void reduce_among(std::span<const int> ranks, const Collective& how, const Buffers& buffers,
                    const CallInProgress& now);
  void reduce_short(std::span<const int> ranks, const Collective& how, const Buffers& buffers,
                    const CallInProgress& now);
  void reduce_long(std::span<const int> ranks, const Collective& how, const Buffers& buffers,
                   const CallInProgress& now);

  // one_host.cpp
  void share_memory(const CallTime& time);
  void exchange_in_memory(std::span<Collective> all, const CallInProgress& now);
  void run_in_memory(const Buffers& buffers, const CallInProgress& now);
  void reduce_by_hosts(const Buffers& buffers, const CallInProgress& now);
  /// `of_leader` has the deadline for the host's lowest rank.
  void look_after(const CallInProgress& now, const CallTime& of_leader, bool is_long);

  GlooOptions options_;
  std::shared_ptr<gloo::transport::Device> device_;  // sub-groups use the same listener
  std::unique_ptr<Wire> wire_;
  Messages messages_;
  std::vector<int> ranks_;               // all ranks
  std::vector<int> leaders_;             // the lowest rank of each host; all ranks if no memory is shared
  std::vector<int> neighbours_;          // the ranks of this host
  std::unique_ptr<SharedGroup> shared_;  // among the neighbours; null if this rank shares no memory
  std::uint64_t collectives_ = 0;        // number of collectives so far
  std::uint64_t splits_ = 0;
  std::vector<const void*> from_;  // one pointer for each rank, for one call
  std::vector<std::byte> scratch_;
  std::vector<std::byte> wide_;  // values of a 16-bit type in f32
};

/// The bytes that one rank contributes or receives.
inline std::size_t bytes_of(const Collective& call, const Buffers& buffers) {
  return static_cast<std::size_t>(buffers.numel) * item_size(call.dtype);
}

}  // namespace tandem::inline v0::parallel

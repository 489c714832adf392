#pragma once

#include <tandem/parallel/comm/gloo/wire.h>  // first: see mesh.h

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
#include <tandem/parallel/comm/gloo/gloo_backend.h>
#include <tandem/parallel/comm/gloo/messages.h>
#include <tandem/parallel/comm/gloo/shared_memory.h>
#include <tandem/parallel/comm/gloo/stream.h>

// Internal: the collectives.

namespace tandem::inline v0::parallel {

/// Gloo's connections, and algorithms of our own on them. What is short goes with a mail to every rank that needs it,
/// which takes one trip; what is long is cut into slices and segments, so that sums are made while the rest travels, or
/// goes through memory that all ranks see.
class GlooBackend final : public Backend {
 public:
  GlooBackend(GlooOptions options, std::shared_ptr<gloo::transport::Device> device, std::unique_ptr<GlooWire> wire);
  ~GlooBackend() override;

  /// After it is made: all ranks share memory, or none does. A collective.
  void share_memory(const CallTime& time);

  std::string_view name() const noexcept override { return "gloo"; }
  bool shares_memory() const noexcept override { return shared_ != nullptr; }
  int rank() const noexcept override { return options_.rank; }
  int size() const noexcept override { return options_.size; }
  std::string refusal(const Collective& call) const override;
  void exchange(const Collective& mine, std::span<Collective> all, const CallTime& time) override;
  void run(const Collective& call, const Buffers& buffers, const CallTime& time) override;
  std::unique_ptr<Backend> split(std::span<const int> members, const CallTime& time) override;
  bool await_message(const Collective& call, const CallTime& time) override;
  void interrupt() noexcept override { wire_->interrupt(); }
  void abort(const CommError& cause) noexcept override;
  std::optional<CommError> failure() const override { return wire_->failure(); }

 private:
  struct Part;
  struct Slice {  // elements of a tensor
    std::int64_t begin = 0;
    std::int64_t count = 0;
  };

  void post(GlooMail::Kind kind, int peer, const void* payload, std::size_t bytes, const GlooCall& now);
  void keep_or_leave(int peer, const GlooMail& mail, const GlooCall& now);
  const GlooMail& collective_mail(int peer, const GlooCall& now);
  const GlooMail& work_mail(int peer, const GlooCall& now);
  [[noreturn]] void fail_different(const GlooCall& now);
  std::uint64_t data_slots(const GlooCall& now) const;
  void leave() noexcept;

  void meet(const GlooCall& now);
  /// A mail to everybody, and one from everybody, as long.
  void tell_all(const void* payload, std::size_t bytes, const GlooCall& now,
                core::FunctionRef<void(int, const void*)> hear);
  void broadcast(void* data, std::int64_t numel, const GlooCall& now);
  void broadcast_short(void* data, std::size_t bytes, const GlooCall& now);
  void broadcast_long(void* data, std::size_t bytes, const GlooCall& now);
  void move_parts(const Buffers& buffers, const GlooCall& now);
  Part part_of(int peer, const Buffers& buffers, const Collective& call) const;
  void reduce(const Buffers& buffers, const GlooCall& now);
  void reduce_short(const Buffers& buffers, const GlooCall& now);
  void reduce_long(const Buffers& buffers, const GlooCall& now);
  void reduce_shared(const Buffers& buffers, const GlooCall& now);
  void exchange_in_memory(std::span<Collective> all, const GlooCall& now);
  void meet_in_memory(const GlooCall& now);
  void look_after(int peer, const GlooCall& now, bool late);
  void look_after_all(const GlooCall& now, bool tell);
  void write_note(const GlooCall& now);
  void read_notes(std::span<Collective> all);
  void check_notes(const GlooCall& now);
  Slice slice_of(int rank, const Buffers& buffers, const Collective& call) const;
  std::byte* scratch(std::size_t bytes);

  GlooOptions options_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::unique_ptr<GlooWire> wire_;
  GlooMessages messages_;
  std::uint64_t collectives_ = 0;  // that were run
  std::uint64_t splits_ = 0;
  std::unique_ptr<SharedMemory> shared_;  // none where the ranks are on several hosts
  std::size_t shared_pieces_ = 0;         // that have gone through it
  std::vector<Collective> notes_;         // of all ranks, for one call
  std::vector<const void*> from_;         // of all ranks, for one call
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace tandem::inline v0::parallel

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include <tandem/core/thread_state.h>
#include <tandem/parallel/distributed/buckets.h>
#include <tandem/parallel/distributed/cut_plan.h>
#include <tandem/parallel/distributed/group_link.h>
#include <tandem/tensor/storage.h>

// Internal: ranks that keep parts of the parameters (ZeRO, stage 3).

namespace tandem::inline v0::parallel {

/// Gathers the parameters of a bucket when a pass uses one of them, and gives back the memory of the other ranks' parts
/// when the pass has used them.
///
/// Whoever takes the address of a parameter's elements comes through on_use(), which makes the parameter's bucket whole
/// or throws: nobody reads the pages that were given back. Each pass remembers the order in which it used buckets. The
/// next pass of its kind starts to gather a bucket while the one before it is in use.
///
/// An address that on_use() has let through stays valid while it may be needed:
/// - in a forward pass until the outermost module call that has used the bucket returns;
/// - in a backward pass until all parameters of the bucket have their gradients. The graph leads from every op that
///   used a parameter to its leaf, so that none of these ops is left then. A bucket that is used after this, by an op
///   on a detached handle, stays until the end of the pass.
/// Buckets whose addresses nobody needs are given back before the next bucket is gathered. The last bucket of a forward
/// pass is the first one of its backward pass, and stays.
///
/// Ranks make the same gathers in the same order if they make the same passes: what stays and what goes depends on
/// nothing else.
class ParameterParts final : public tandem::detail::StorageGuard {
 public:
  /// Gives back all parts but this rank's. Throws ConfigError if the parameters are not on one CPU device. `buckets`
  /// must outlive this object.
  ParameterParts(const GroupLink& link, const Buckets& buckets);
  /// The parameters stay as they are: whole within a scope of begin_whole(). Otherwise each later use of them is an
  /// error.
  ~ParameterParts();
  ParameterParts(const ParameterParts&) = delete;
  ParameterParts& operator=(const ParameterParts&) = delete;

  /// Reading is the use of one parameter after another, outside of a pass of the module.
  enum class Pass : std::uint8_t { forward, backward, reading };
  /// From now on this thread may use parameters. Throws AutogradError while another pass is open, CaptureError while
  /// this thread records a step.
  void begin(Pass kind);
  void end() noexcept;
  /// In a backward pass, a parameter has its whole gradient.
  void note_gradient(std::size_t member) noexcept;

  /// A collective. Until end_whole() all parameters are there.
  void begin_whole();
  void end_whole() noexcept;

  /// Optimisers have changed this rank's part of these buckets. A collective if parameters of the other ranks are
  /// there.
  void note_updated(const std::vector<std::size_t>& buckets);

  /// The most bytes of parameters that were there at once.
  std::int64_t peak_bytes() const noexcept { return peak_; }

  void on_use(const tandem::detail::Storage& storage) override;

 private:
  enum class State : std::uint8_t { part, coming, whole };
  // Until when addresses in a bucket may be needed.
  enum class Needed : std::uint8_t { no_more, in_scope, for_gradients, to_the_end };
  struct Bucket {
    tandem::detail::View values;
    CutPlan gather;
    State state = State::whole;
    Needed needed = Needed::no_more;
    bool used = false;                  // in this pass, since it came
    const core::ModuleScope* scope{};   // in which it is needed ...
    const char* path{};                 // ... and its path, since another call may have the same place on the stack
    std::size_t without_gradients = 0;  // members, in this backward pass
    std::int64_t bytes_of_others = 0;
  };

  bool is_open() const noexcept { return owner_.load(std::memory_order_relaxed) != std::thread::id(); }
  bool is_free(const Bucket& bucket) const noexcept;
  void note_need(Bucket& bucket) const noexcept;
  std::optional<std::size_t> next_after(std::size_t bucket);
  void start(Bucket& bucket);
  void finish(Bucket& bucket);
  void make_room(std::size_t bucket, std::size_t other);
  void drop(Bucket& bucket) noexcept;
  void drop_all(const Bucket* but) noexcept;
  [[noreturn]] void refuse(std::size_t member) const;

  const GroupLink& link_;
  const Buckets& buckets_;
  std::vector<Bucket> all_;
  std::unordered_map<const tandem::detail::Storage*, std::size_t> member_of_;
  std::atomic<std::thread::id> owner_{};  // the thread of the pass that is open
  Pass kind_ = Pass::forward;
  std::atomic<int> whole_scopes_ = 0;
  std::vector<std::size_t> order_;      // of the first uses in this pass ...
  std::vector<std::size_t> latest_[3];  // ... and in the latest pass of each kind
  std::size_t at_ = 0;                  // place in the latest order
  std::int64_t here_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace tandem::inline v0::parallel

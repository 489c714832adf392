#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include <tandem/core/error.h>
#include <tandem/core/intrusive.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/distributed/buckets.h>
#include <tandem/parallel/distributed/cut_plan.h>
#include <tandem/tensor/storage.h>

// Internal: the end of a sharded update under the next forward pass.

namespace tandem::inline v0::parallel {

/// Gathers a bucket's updated parameters, of which each rank has its part. A gather may travel while the ranks go on:
/// whoever takes the address of one of the parameters' elements waits for it in on_use().
class LateGather final : public tandem::detail::StorageGuard {
 public:
  /// A collective.
  LateGather(ProcessGroup& group, const Buckets& buckets, std::size_t bucket, const PlanName& name);
  ~LateGather();
  LateGather(const LateGather&) = delete;
  LateGather& operator=(const LateGather&) = delete;

  /// Returns when this rank has the other ranks' parts.
  void run() { gather_.run(); }
  /// The other ranks' parts come until somebody uses one of the parameters. Does what run() does where this gains
  /// nothing or nobody would wait:
  /// - ranks that share memory copy the parts with the cores that compute;
  /// - a GPU's stream waits, and other streams would not;
  /// - a captured step that uses the parameters takes no addresses.
  void start();
  /// Returns when nothing is under way. If an exchange has failed, this call and each later one throws its error: the
  /// parameters are partly old.
  void finish();

  void on_use(const tandem::detail::Storage& storage) override;

 private:
  CutPlan gather_;
  std::vector<core::Ref<tandem::detail::Storage>> storages_;  // of the bucket's parameters
  bool may_be_late_;
  enum class State : std::uint8_t { here, coming, failed };
  std::atomic<State> state_ = State::here;
  std::mutex mutex_;  // of those who wait, and of the members below
  std::optional<CommError> error_;
  bool told_ = false;
};

}  // namespace tandem::inline v0::parallel

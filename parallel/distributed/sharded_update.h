#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/autograd/sharding.h>
#include <tandem/parallel/comm/partner_totals.h>
#include <tandem/parallel/comm/work.h>
#include <tandem/parallel/distributed/buckets.h>
#include <tandem/parallel/distributed/group_link.h>
#include <tandem/parallel/distributed/late_gather.h>
#include <tandem/parallel/distributed/parameter_parts.h>
#include <tandem/tensor/recorder.h>

// Internal: ranks that share out the optimiser's updates (ZeRO).

namespace tandem::inline v0::parallel {

enum class Shard : std::uint8_t;

/// "optimizer", for texts.
const char* name_of(Shard shard);

/// Gives each rank a part of every bucket: the rank's optimisers keep state for that part, update it, and get the other
/// parts from the other ranks, at once or when a pass needs them.
class ShardedUpdate final : public autograd::Sharding {
 public:
  /// A collective. From now on the leaves of all members have parts. With `shard` = gradients or parameters the memory
  /// of the other ranks' parts is given back; throws ConfigError if some of it is on a GPU.
  ShardedUpdate(const GroupLink& link, const Buckets& buckets, Shard shard);
  ~ShardedUpdate();
  ShardedUpdate(const ShardedUpdate&) = delete;
  ShardedUpdate& operator=(const ShardedUpdate&) = delete;

  std::string name() const override { return link_.wrapper_name(); }
  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  void begin_update() override;
  void updated(const std::vector<const autograd::Leaf*>& leaves) override;
  void join(const tandem::detail::View& tensor) override;
  bool keeps_parts() const noexcept override { return parameters_.has_value(); }
  void begin_reading() override { parameters_->begin(ParameterParts::Pass::reading); }
  void end_reading() noexcept override { parameters_->end(); }

  /// Throws AutogradError if a backward pass cannot begin: a gradient of an earlier pass is still there, of which this
  /// rank has only its part, or a hook waits for the whole gradients of a pass of all ranks (`synced`).
  void check_pass(bool synced) const;
  /// The gradients of a pass were reduced.
  void note_reduced() const;
  /// Where the parameters are shared out: the most bytes of them that were there at once.
  std::int64_t peak_parameter_bytes() const { return parameters_->peak_bytes(); }
  /// Null unless the parameters are shared out.
  ParameterParts* parameters() noexcept { return parameters_ ? &*parameters_ : nullptr; }

 private:
  const GroupLink& link_;
  const Buckets& buckets_;
  std::deque<LateGather> gathers_;         // one for each bucket; none where ranks keep parts of the parameters
  std::shared_ptr<PartnerTotals> totals_;  // of flags and norms
  bool drops_gradients_;
  std::optional<ParameterParts> parameters_;
  tandem::detail::Watched life_;  // captured steps refer to this object
};

}  // namespace tandem::inline v0::parallel

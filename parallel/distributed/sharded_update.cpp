#include <tandem/parallel/distributed/sharded_update.h>

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/span.h>
#include <tandem/parallel/comm/elastic_rank.h>
#include <tandem/parallel/distributed/distributed_data_parallel.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

using tandem::detail::View;

namespace {

constexpr const char* kAdvice = PartnerTotals::kAdvice;

}  // namespace

const char* name_of(Shard shard) {
  switch (shard) {
    case Shard::none: return "none";
    case Shard::optimizer: return "optimizer";
    case Shard::gradients: return "gradients";
    case Shard::parameters: return "parameters";
  }
  return "";
}

ShardedUpdate::ShardedUpdate(const GroupLink& link, const Buckets& buckets, Shard shard)
    : link_(link), buckets_(buckets), drops_gradients_(shard != Shard::optimizer) {
  ProcessGroup& group = link.group();
  check_not_elastic(name() + " with .shard", "its part of the optimiser's state");
  for (const BucketRange& range : buckets.ranges()) {
    check<ConfigError>(!drops_gradients_ || range.gradients.device().type == DeviceType::cpu,
                       "{}: shard = {} gives back pages of the host's memory, and there are gradients on {}; take "
                       "shard = optimizer there",
                       name(), name_of(shard), range.gradients.device());
  }
  const std::vector<BucketMember>& members = buckets.members();
  for (const BucketMember& member : members) {
    check<ConfigError>(
        member.parameter.unresolved()->view.storage->guard() == nullptr,
        "{}: another wrapper had shared out '{}' (shard) and is gone, so that this rank has only a part of it, or a "
        "part of the last step. Make the module anew and load a state_dict() that was taken while the wrapper lived, "
        "or let the wrapper go within a scope of whole_parameters()",
        name(), member.name);
  }
  for (std::size_t b = 0; shard != Shard::parameters && b < buckets.ranges().size(); ++b) {
    gathers_.emplace_back(
        group, buckets, b,
        PlanName{.purpose = fmt::format("the updated parameters of {} of {}", buckets.name(b), name()),
                 .advice = kAdvice});
  }
  std::vector<Device> devices;
  for (const BucketRange& range : buckets.ranges()) {
    devices.push_back(range.gradients.device());
  }
  totals_ = std::make_shared<PartnerTotals>(group, devices, name());
  for (const BucketRange& range : buckets.ranges()) {
    const CutBucket cut(range.gradients.numel(), range.gradients.dtype, size());
    std::int64_t at = 0;  // of the member in its bucket
    for (std::size_t i = range.first; i < range.last; ++i) {
      const ParameterStore::Place& place = members[i].place;
      const std::int64_t padded = place.store->segments()[place.segment].padded;
      members[i].leaf->part = {.by = this,
                               .begin = std::clamp<std::int64_t>(cut.begin(rank()) - at, 0, padded),
                               .end = std::clamp<std::int64_t>(cut.end(rank(), size()) - at, 0, padded)};
      members[i].leaf->partners.set(autograd::PartnerKind::shard, totals_);
      at += padded;
    }
  }
  if (shard == Shard::parameters) {
    parameters_.emplace(link, buckets);
  }
}

ShardedUpdate::~ShardedUpdate() {
  for (const BucketMember& member : buckets_.members()) {
    member.leaf->part = {};
    if (member.leaf->has_only_part()) {
      member.leaf->set_fresh(false);
    }
  }
}

// A gather reads this rank's part, which the update is about to write.
void ShardedUpdate::begin_update() { std::ranges::for_each(gathers_, &LateGather::finish); }

void ShardedUpdate::updated(const std::vector<const autograd::Leaf*>& leaves) {
  std::vector<std::size_t> buckets;
  for (const autograd::Leaf* leaf : leaves) {
    buckets.push_back(buckets_.members()[leaf->observed_as].bucket);
  }
  std::ranges::sort(buckets, std::greater<>());  // in the order of the forward pass
  buckets.erase(std::ranges::unique(buckets).begin(), buckets.end());
  life_.watch();
  tandem::detail::placed_work("DistributedDataParallel::gather", [this, buckets] {
    const SpanScope timed(Phase::reduce);
    if (parameters_) {
      parameters_->note_updated(buckets);
      return;
    }
    for (const std::size_t bucket : buckets) {
      gathers_[bucket].start();
    }
  });
}

// All other ranks have bytes of 0, which change no bit of a sum of integers.
void ShardedUpdate::join(const View& tensor) {
  if (tensor.numel() == 0) {
    return;
  }
  View bytes = tensor;
  bytes.dtype = DType::u8;
  bytes.sizes = {tensor.numel() * static_cast<std::int64_t>(item_size(tensor.dtype))};
  bytes.strides = {1};
  bytes.offset *= static_cast<std::int64_t>(item_size(tensor.dtype));
  try {
    link_.group().all_reduce(Tensor(bytes), ReduceOp::sum);
  } catch (CommError& error) {
    error.add_context("in state_dict() of an optimiser whose updates " + name() +
                      " shares out (shard): all ranks call it, also where one of them saves");
    throw;
  }
}

void ShardedUpdate::check_pass(bool synced) const {
  for (const BucketMember& member : buckets_.members()) {
    check<AutogradError>(
        !member.leaf->has_only_part(),
        "{}: parameter '{}' still has its gradient of the backward pass before, of which this rank has "
        "only its part (shard), so that nothing can be added; call zero_grad() before backward(), and "
        "add up gradients within no_sync()",
        name(), member.name);
    check<AutogradError>(
        !synced || member.leaf->post_hooks.empty(),
        "{}: parameter '{}' has a hook (register_post_accumulate_grad_hook), which waits for its whole "
        "gradient, and with shard a rank has a part of it; remove the hook, or leave .shard out",
        name(), member.name);
  }
}

void ShardedUpdate::note_reduced() const {
  for (const BucketMember& member : buckets_.members()) {
    if (member.leaf->fresh()) {
      member.leaf->keep_only_part();
    }
  }
  for (const BucketRange& range : buckets_.ranges()) {
    if (drops_gradients_) {
      drop_other_parts(range.gradients, rank(), size());
    }
  }
}

}  // namespace tandem::inline v0::parallel

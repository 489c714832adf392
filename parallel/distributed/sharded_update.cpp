#include <tandem/parallel/distributed/sharded_update.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/huge_pages.h>
#include <tandem/core/step_times.h>
#include <tandem/parallel/comm/elastic_rank.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

using tandem::detail::narrow;
using tandem::detail::View;

namespace {

constexpr const char* kAdvice = PartnerTotals::kAdvice;

// The parameters' values that lie like a bucket's gradients.
View values_of(const BucketRange& range, const std::vector<BucketMember>& members) {
  const ParameterStore::Place& place = members[range.first].place;
  return narrow(place.store->values(), 0, place.store->segments()[place.segment].offset, range.gradients.numel());
}

CutPlan plan_gather_parts(ProcessGroup& group, const View& values, const std::string& name) {
  const CutBucket cut(values.numel(), values.dtype, group.size());
  const std::int64_t whole = cut.part * group.size();
  std::vector<PlannedCollective> calls;
  if (whole > 0) {
    calls.push_back(group.plan_all_gather(narrow(values, 0, 0, whole), {.purpose = name, .advice = kAdvice}));
  }
  if (cut.rest > 0) {
    calls.push_back(group.plan_broadcast(narrow(values, 0, whole, cut.rest), group.size() - 1,
                                         {.purpose = "the end of " + name, .advice = kAdvice}));
  }
  return CutPlan(std::move(calls));
}

void drop_elements(const View& values, std::int64_t first, std::int64_t count) {
  const View part = narrow(values, 0, first, count);
  core::drop_pages(part.data(), static_cast<std::size_t>(count) * item_size(part.dtype));
}

}  // namespace

CutBucket::CutBucket(std::int64_t numel, DType dtype, int ranks) {
  const std::int64_t step = kStep / static_cast<std::int64_t>(item_size(dtype));
  part = numel / ranks / step * step;
  rest = numel - part * ranks;
}

void CutPlan::start() { std::ranges::for_each(calls_, &PlannedCollective::start); }

void CutPlan::run() { std::ranges::for_each(calls_, &PlannedCollective::run); }

void CutPlan::wait() { std::ranges::for_each(calls_, &PlannedCollective::wait); }

CutPlan plan_reduce_parts(ProcessGroup& group, const View& gradients, const PlanName& name) {
  const CutBucket cut(gradients.numel(), gradients.dtype, group.size());
  const std::int64_t whole = cut.part * group.size();
  std::vector<PlannedCollective> calls;
  if (whole > 0) {
    calls.push_back(group.plan_reduce_scatter(narrow(gradients, 0, 0, whole), ReduceOp::avg, name));
  }
  if (cut.rest > 0) {
    calls.push_back(group.plan_all_reduce(narrow(gradients, 0, whole, cut.rest), ReduceOp::avg,
                                          {.purpose = "the end of " + name.purpose, .advice = name.advice}));
  }
  return CutPlan(std::move(calls));
}

ShardedUpdate::ShardedUpdate(const GroupLink& link, const Buckets& buckets, bool drops_gradients)
    : link_(link), buckets_(buckets), drops_gradients_(drops_gradients) {
  ProcessGroup& group = link.group();
  check_not_elastic(name() + " with .shard", "its part of the optimiser's state");
  for (const BucketRange& range : buckets.ranges()) {
    check<ConfigError>(
        !drops_gradients || range.gradients.device().type == DeviceType::cpu,
        "{}: shard = gradients gives back pages of the host's memory, and there are gradients on {}; take "
        "shard = optimizer there",
        name(), range.gradients.device());
  }
  const std::vector<BucketMember>& members = buckets.members();
  for (std::size_t b = 0; b < buckets.ranges().size(); ++b) {
    values_.push_back(plan_gather_parts(group, values_of(buckets.ranges()[b], members),
                                        fmt::format("the updated parameters of {} of {}", buckets.name(b), name())));
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
      members[i].leaf->partners = totals_;
      at += padded;
    }
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

void ShardedUpdate::updated(const std::vector<const autograd::Leaf*>& leaves) {
  std::vector<std::size_t> buckets;
  for (const autograd::Leaf* leaf : leaves) {
    buckets.push_back(buckets_.members()[leaf->observed_as].bucket);
  }
  std::ranges::sort(buckets);
  buckets.erase(std::ranges::unique(buckets).begin(), buckets.end());
  life_.watch();
  tandem::detail::placed_work("DistributedDataParallel::gather", [this, buckets] {
    const PhaseScope timed(Phase::reduce);
    for (const std::size_t bucket : buckets) {
      values_[bucket].run();
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
      const CutBucket cut(range.gradients.numel(), range.gradients.dtype, size());
      const std::int64_t begin = cut.begin(rank());
      const std::int64_t end = cut.end(rank(), size());
      drop_elements(range.gradients, 0, begin);
      drop_elements(range.gradients, end, range.gradients.numel() - end);
    }
  }
}

}  // namespace tandem::inline v0::parallel

#include <tandem/parallel/distributed/used_parameters.h>

#include <algorithm>
#include <functional>

#include <tandem/core/warning.h>
#include <tandem/parallel/comm/on_cpu.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

namespace {

// The state of a rank's gradient: absent, already reduced, or new.
constexpr std::int32_t kNone = 0;
constexpr std::int32_t kOld = 1;
constexpr std::int32_t kNew = 2;

}  // namespace

UsedParameters::UsedParameters(const GroupLink& link, Buckets& buckets, bool may_be_unused)
    : link_(link), buckets_(buckets) {
  if (may_be_unused) {
    record_ = zeros({2 * static_cast<std::int64_t>(buckets.members().size()) + 1}, on_cpu(DType::i32));
  }
  if (may_be_unused && link.size() > 1) {
    plan_ = link.group().plan_all_reduce(record_.raw(), ReduceOp::max,
                                         {.purpose = "which parameters were used by " + link.wrapper_name()});
  }
}

bool UsedParameters::is_given(std::size_t member) const {
  return !may_be_unused() || record_.span<std::int32_t>()[member] == kNew;
}

KeptGradient UsedParameters::keep(std::size_t member) const {
  const tandem::detail::View gradient = buckets_.memory_of(member);
  const tandem::detail::View old = tandem::detail::empty_view(gradient.sizes, gradient.dtype, gradient.device());
  tandem::detail::copy(old, gradient);
  return {member, old, buckets_.members()[member].leaf->grad_version()};
}

void UsedParameters::agree(const std::vector<KeptGradient>& kept, bool lacks, bool follows) {
  if (!may_be_unused()) {
    return;
  }
  const std::size_t count = buckets_.members().size();
  const auto record = record_.mutable_span<std::int32_t>();
  const auto most = record.first(count);
  const auto negated_least = record.subspan(count, count);
  record.back() = lacks ? 1 : 0;
  for (std::size_t i = 0; i < count; ++i) {
    most[i] = buckets_.has_new(i) ? kNew : kNone;
  }
  if (follows) {
    std::ranges::fill(negated_least, -kNew);
  } else {
    for (const KeptGradient& old : kept) {
      most[old.member] = kOld;
    }
    std::ranges::transform(most, negated_least.begin(), std::negate());
  }
  if (plan_) {
    plan_->run();
    if (link_.rank() == 0 && record.back() == 0) {  // in the first pass; every later pass reports a missing gradient
      core::warn(
          "DistributedDataParallel: find_unused_parameters was given, and in the first backward pass every parameter "
          "had a gradient on every rank: it costs an all-reduce in each pass; leave it out unless later passes differ");
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (most[i] == kOld && negated_least[i] == -kNone) {
      most[i] = kNew;  // only some ranks have this old gradient: all ranks take its mean
    }
    if (most[i] == kNew) {
      buckets_.members()[i].leaf->adopt_home();
    }
  }
  for (const auto& [member, gradient, version] : kept) {
    if (most[member] != kNew) {
      autograd::Leaf& leaf = *buckets_.members()[member].leaf;
      tandem::detail::copy(buckets_.memory_of(member), gradient);
      leaf.set_fresh(most[member] == kOld);
      leaf.set_grad_version(version);  // for graphs of other passes the gradient is unchanged
    }
  }
}

}  // namespace tandem::inline v0::parallel

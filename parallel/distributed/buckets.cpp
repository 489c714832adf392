#include <tandem/parallel/distributed/buckets.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <unordered_map>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/comm/planned_all_reduce.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr double kMiB = 1 << 20;
constexpr double kMostMb = 25;
constexpr double kMostMeant = 1 << 30;  // more, such as infinity, is all in one

// Of `bytes`, in microseconds, on the slowest rank.
double all_reduce_us(ProcessGroup& group, std::int64_t bytes) {
  using Clock = std::chrono::steady_clock;
  const TensorOptions on_cpu{.dtype = DType::f32, .device = Device(DeviceType::cpu, 0)};
  PlannedAllReduce plan = group.plan_all_reduce(zeros({bytes / 4}, on_cpu).raw());
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) {
    const auto start = Clock::now();
    plan.run();
    least = std::min(least, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  const Tensor slowest = full({1}, least, on_cpu);
  group.all_reduce(slowest, ReduceOp::max);
  return slowest.item();
}

double measured_mb(ProcessGroup& group) {
  constexpr std::int64_t kShort = 4 << 10;
  constexpr std::int64_t kLong = 256 << 10;
  constexpr double kShare = 0.02;
  const double fixed = all_reduce_us(group, kShort);
  const double per_byte = (all_reduce_us(group, kLong) - fixed) / (kLong - kShort);
  return std::clamp(per_byte > 0 ? fixed / (kShare * per_byte * kMiB) : kMostMb, 1.0, kMostMb);
}

}  // namespace

BucketLimits bucket_limits(ProcessGroup& group, std::optional<double> bucket_cap_mb) {
  const auto bytes = [](double mb) { return static_cast<std::int64_t>(std::min(mb, kMostMeant) * kMiB); };
  if (bucket_cap_mb) {
    check<ConfigError>(*bucket_cap_mb > 0, "DistributedDataParallel: bucket_cap_mb is {}; it must be more than 0",
                       *bucket_cap_mb);
    return {bytes(*bucket_cap_mb), bytes(*bucket_cap_mb)};
  }
  if (group.size() == 1 || group.queue()->backend().shares_memory()) {
    return {bytes(kMostMb), bytes(kMostMb)};
  }
  if (group.backend() == "gloo") {
    const std::int64_t measured = bytes(measured_mb(group));
    return {measured, measured};
  }
  return {bytes(1), bytes(kMostMb)};
}

Buckets make_buckets(const nn::NamedTensors& trained, const BucketLimits& limits) {
  std::vector<Tensor> parameters;
  std::unordered_map<const autograd::Leaf*, std::string> names;
  for (const auto& [name, parameter] : trained) {
    parameters.push_back(parameter);
    names.emplace(autograd::leaf_of(*parameter.unresolved()), name);
  }
  ParameterStore::ensure(parameters);
  Buckets buckets;
  std::int64_t end = 0;  // where the last range ends in its store
  for (const Tensor& parameter : sorted_by_place(parameters)) {
    autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
    const ParameterStore::Place place = leaf->place;
    const ParameterStore::Segment& segment = place.store->segments()[place.segment];
    const tandem::detail::View& all = place.store->gradients();
    const auto item = static_cast<std::int64_t>(item_size(all.dtype));
    const std::int64_t limit = buckets.ranges.size() <= 1 ? limits.first : limits.others;
    const bool follows = !buckets.ranges.empty() && buckets.members.back().place.store == place.store &&
                         end == segment.offset && buckets.ranges.back().gradients.numel() * item < limit;
    if (!follows) {
      buckets.ranges.push_back({tandem::detail::narrow(all, 0, segment.offset, 0), buckets.members.size(), 0});
    }
    BucketRange& range = buckets.ranges.back();
    range.gradients.sizes[0] += segment.padded;
    range.last = buckets.members.size() + 1;
    end = segment.offset + segment.padded;
    leaf->observed_as = buckets.members.size();
    buckets.members.push_back({names.at(leaf), parameter, leaf, place, buckets.ranges.size() - 1});
  }
  return buckets;
}

std::vector<std::string> describe(const Buckets& buckets) {
  std::vector<std::string> lines;
  for (std::size_t b = 0; b < buckets.ranges.size(); ++b) {
    const BucketRange& range = buckets.ranges[b];
    lines.push_back(fmt::format("bucket {} of gradients: {} {}, from '{}' to '{}'", b, range.gradients.dtype,
                                range.gradients.numel(), buckets.members[range.first].name,
                                buckets.members[range.last - 1].name));
    for (std::size_t i = range.first; i < range.last; ++i) {
      const BucketMember& member = buckets.members[i];
      lines.push_back(
          fmt::format("the gradient of '{}' {} as number {} in memory", member.name, member.parameter.shape(), i));
    }
  }
  return lines;
}

}  // namespace tandem::inline v0::parallel

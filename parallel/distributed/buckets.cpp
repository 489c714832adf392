#include <tandem/parallel/distributed/buckets.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <unordered_map>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/comm/on_cpu.h>
#include <tandem/parallel/comm/work.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr double kMiB = 1 << 20;
constexpr double kMostMb = 25;
constexpr double kMostMeant = 1 << 30;  // larger values, including infinity, put all gradients into one bucket

// The time for `bytes`, in microseconds, on the slowest rank.
double all_reduce_us(ProcessGroup& group, std::int64_t bytes) {
  using Clock = std::chrono::steady_clock;
  PlannedCollective plan = group.plan_all_reduce(zeros({bytes / 4}, on_cpu(DType::f32)).raw());
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) {
    const auto start = Clock::now();
    plan.run();
    least = std::min(least, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  const Tensor slowest = full({1}, least, on_cpu(DType::f32));
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
    check<ConfigError>(*bucket_cap_mb >= 0, "DistributedDataParallel: bucket_cap_mb is {}; expected 0 or more",
                       *bucket_cap_mb);
    const std::int64_t limit = std::max<std::int64_t>(bytes(*bucket_cap_mb), 1);
    return {limit, limit};
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

Buckets::Buckets(const nn::NamedTensors& trained, const BucketLimits& limits) {
  std::vector<Tensor> parameters;
  std::unordered_map<const autograd::Leaf*, std::string> names;
  for (const auto& [name, parameter] : trained) {
    parameters.push_back(parameter);
    names.emplace(autograd::leaf_of(*parameter.unresolved()), name);
  }
  ParameterStore::ensure(parameters);
  std::int64_t end = 0;  // end of the last range in its store
  for (const Tensor& parameter : sorted_by_place(parameters)) {
    autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
    const ParameterStore::Place place = leaf->place;
    const ParameterStore::Segment& segment = place.store->segments()[place.segment];
    const tandem::detail::View& all = place.store->gradients();
    const auto item = static_cast<std::int64_t>(item_size(all.dtype));
    const std::int64_t limit = ranges_.size() <= 1 ? limits.first : limits.second;
    const bool follows = !ranges_.empty() && members_.back().place.store == place.store && end == segment.offset &&
                         ranges_.back().gradients.numel() * item < limit;
    if (!follows) {
      ranges_.push_back({tandem::detail::narrow(all, 0, segment.offset, 0), members_.size(), 0});
    }
    BucketRange& range = ranges_.back();
    range.gradients.sizes[0] += segment.padded;
    range.last = members_.size() + 1;
    end = segment.offset + segment.padded;
    leaf->observed_as = members_.size();
    members_.push_back(
        {names.at(leaf), parameter, leaf, place, ranges_.size() - 1, leaf->fresh() ? kBeforeWrapping : 0});
  }
}

tandem::detail::View Buckets::memory_of(std::size_t member) const {
  const ParameterStore::Place& place = members_[member].place;
  const ParameterStore::Segment& segment = place.store->segments()[place.segment];
  return tandem::detail::narrow(place.store->gradients(), 0, segment.offset, segment.padded);
}

tandem::detail::View Buckets::values_of(std::size_t bucket) const {
  const ParameterStore::Place& place = members_[ranges_[bucket].first].place;
  return tandem::detail::narrow(place.store->values(), 0, place.store->segments()[place.segment].offset,
                                ranges_[bucket].gradients.numel());
}

std::string Buckets::name(std::size_t bucket) const {
  const BucketRange& range = ranges_[bucket];
  const std::string& first = members_[range.first].name;
  const std::string& last = members_[range.last - 1].name;
  return fmt::format("bucket {} of {}, '{}'{}", bucket, ranges_.size(), first,
                     range.first + 1 == range.last ? "" : fmt::format(" to '{}'", last));
}

std::vector<std::string> Buckets::describe() const {
  std::vector<std::string> lines;
  for (std::size_t b = 0; b < ranges_.size(); ++b) {
    const auto& [gradients, first, last] = ranges_[b];
    lines.push_back(fmt::format("bucket {} of gradients: {} {}, from '{}' to '{}'", b, gradients.dtype,
                                gradients.numel(), members_[first].name, members_[last - 1].name));
    for (std::size_t i = first; i < last; ++i) {
      lines.push_back(fmt::format("the gradient of '{}' {} as number {} in memory", members_[i].name,
                                  members_[i].parameter.shape(), i));
    }
  }
  return lines;
}

bool Buckets::has_new(std::size_t member) const {
  return members_[member].leaf->fresh() && members_[member].arrived > reduced_;
}

bool Buckets::has_new_from(Origin origin) const {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (has_new(i) && (members_[i].arrived == kBeforeWrapping) == (origin == Origin::before_wrapping)) {
      return true;
    }
  }
  return false;
}

std::int64_t Buckets::set_of_gradients() const {
  std::uint64_t set = 0;
  for (const BucketMember& member : members_) {
    set = (set ^ (member.leaf->fresh() ? 1 : 0)) * 0x100000001b3ULL;  // FNV-1a; 0 if no member has a gradient
  }
  return static_cast<std::int64_t>(set);
}

std::uint64_t Buckets::parameter_versions() const {
  std::uint64_t sum = 0;
  for (const BucketMember& member : members_) {
    sum += member.parameter.version();
  }
  return sum;
}

void Buckets::scale(std::size_t bucket, double factor) const {
  if (factor != 1) {
    const tandem::detail::View& values = ranges_[bucket].gradients;
    tandem::detail::pointwise(kernels::PointwiseOp::mul_scalar, values, {&values}, {.s = factor});
  }
}

void Buckets::scale_all(double factor) const {
  for (std::size_t bucket = 0; bucket < ranges_.size(); ++bucket) {
    scale(bucket, factor);
  }
}

}  // namespace tandem::inline v0::parallel

#include <tandem/parallel/distributed/distributed_sampler.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/thread_state.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>

namespace tandem::inline v0::parallel {

namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

DistributedSampler::DistributedSampler(const data::Dataset& dataset, const DistributedSamplerOptions& options)
    : data_size_(dataset.size()), options_(options) {
  check<ConfigError>(data_size_ > 0, "DistributedSampler: the data set is empty");
  check<ConfigError>(!(options.exact && options.drop_last),
                     "DistributedSampler: exact has every sample once, and drop_last leaves some out; choose one");
  check<ConfigError>(
      !options.process_group || *options.process_group != nullptr,
      "DistributedSampler: process_group is null, as for a rank that is not in a sub-group; let only its "
      "members share the data, or leave it out for the default group");
  const ProcessGroup* group = options.process_group ? *options.process_group
                              : is_initialized()    ? &default_group()
                                                    : nullptr;
  check<ConfigError>(group != nullptr || (options.num_replicas && options.rank),
                     "DistributedSampler: there is no default group to say who we are; make a ProcessGroupGuard first, "
                     "or give num_replicas and rank [TDM-E604]");
  replicas_ = options.num_replicas ? *options.num_replicas : group->size();
  rank_ = options.rank ? *options.rank : group->rank();
  check<ConfigError>(replicas_ >= 1, "DistributedSampler: num_replicas is {}; expected at least 1", replicas_);
  check<ConfigError>(rank_ >= 0 && rank_ < replicas_,
                     "Invalid rank {}, rank should be in the interval [0, {}] [TDM-E605]", rank_, replicas_ - 1);
  if (group != nullptr && replicas_ != group->size()) {  // once: a program may make a sampler for each epoch
    core::warn_once(
        fmt::format("DistributedSampler: it shares the data among {} ranks, and the {} has {}: {} [TDM-W602]",
                    replicas_, options.process_group ? "process group" : "default group", group->size(),
                    replicas_ < group->size() ? "samples are used more than once" : "samples are left out"));
  } else if (group == nullptr && replicas_ > 1) {
    core::warn_once(
        fmt::format("DistributedSampler: part {} of {} of the data, and there is no process group: a program that "
                    "trains alone never sees the rest. DataParallel takes whole batches: leave the sampler out. Ranks "
                    "make a ProcessGroupGuard first [TDM-W601]",
                    rank_, replicas_));
  }
  size_ = share_of(data_size_);
  check<ConfigError>(
      size_ > 0 || options.exact,
      "DistributedSampler: {} samples are too few for each of {} ranks to have one; leave out drop_last, "
      "and samples are repeated",
      data_size_, replicas_);
}

std::int64_t DistributedSampler::next_epoch(std::optional<std::int64_t> epoch) const {
  const bool is_told = is_set_.exchange(false);
  const std::int64_t next = is_told || !epoch ? static_cast<std::int64_t>(epoch_.load()) : *epoch;
  epoch_ = static_cast<std::uint64_t>(next) + 1;
  return next;
}

std::int64_t DistributedSampler::share_of(std::int64_t samples) const {
  return options_.exact       ? ceil_div(std::max(samples - rank_, std::int64_t{0}), replicas_)
         : options_.drop_last ? samples / replicas_
                              : ceil_div(samples, replicas_);
}

std::vector<std::int64_t> DistributedSampler::indices_after(std::int64_t epoch, std::int64_t used) const {
  std::vector<std::int64_t> order(static_cast<std::size_t>(data_size_));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (options_.shuffle) {
    Generator generator(options_.seed + static_cast<std::uint64_t>(epoch));
    core::ThreadState state = core::thread_state();
    state.generator = &generator;
    state.device = Device();
    const core::ThreadStateScope scope(state);
    order = randperm(data_size_).to_vector<std::int64_t>();
  }
  std::vector<std::int64_t> mine(static_cast<std::size_t>(share_of(std::max(data_size_ - used, std::int64_t{0}))));
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const std::int64_t place = used + rank_ + static_cast<std::int64_t>(i) * replicas_;
    mine[i] = order[static_cast<std::size_t>(place % data_size_)];
  }
  return mine;
}

}  // namespace tandem::inline v0::parallel

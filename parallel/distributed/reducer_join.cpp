#include <algorithm>
#include <cstddef>
#include <exception>
#include <mutex>
#include <ranges>

#include <tandem/core/check.h>
#include <tandem/core/step_times.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/distributed/buffer_sync.h>
#include <tandem/parallel/distributed/distributed_data_parallel.h>
#include <tandem/parallel/distributed/join_state.h>
#include <tandem/parallel/distributed/reducer.h>
#include <tandem/tensor/raw.h>

// What a reducer does for ranks with unequal inputs.

namespace tandem::inline v0::parallel {

namespace {

void scale(const tandem::detail::View& values, double factor) {
  tandem::detail::pointwise(kernels::PointwiseOp::mul_scalar, values, {&values}, {.s = factor});
}

}  // namespace

void Reducer::set_join(JoinState* join, std::size_t index) {
  join_ = join;
  join_index_ = index;
  weight_ = 1;
  factor_ = 1;
  buffers_from_ = 0;
}

ProcessGroup& Reducer::group() const {
  check_group();
  return group_;
}

void Reducer::abort(std::string_view reason) { queue_->abort(reason); }

std::int64_t Reducer::set_of_gradients() const {
  std::uint64_t set = 0;
  for (const BucketMember& member : buckets_.members) {
    set = (set ^ (member.leaf->fresh() ? 1 : 0)) * 0x100000001b3ULL;  // FNV-1a: 0 as long as there is none
  }
  return static_cast<std::int64_t>(set);
}

bool Reducer::has_local_gradients() const {
  const auto members = std::views::iota(std::size_t{0}, buckets_.members.size());
  return std::ranges::any_of(
      members, [this](std::size_t member) { return has_new(member) && arrived_[member] > kBeforeWrapping; });
}

bool Reducer::has_early_gradients() const {
  const auto members = std::views::iota(std::size_t{0}, buckets_.members.size());
  return std::ranges::any_of(
      members, [this](std::size_t member) { return has_new(member) && arrived_[member] == kBeforeWrapping; });
}

void Reducer::scale_gradients(double factor) {
  for (const BucketRange& range : buckets_.ranges) {
    scale(range.gradients, factor);
  }
}

std::uint64_t Reducer::parameter_versions() const {
  std::uint64_t sum = 0;
  for (const BucketMember& member : buckets_.members) {
    sum += member.parameter.version();
  }
  return sum;
}

void Reducer::shadow() {
  const PhaseScope timed(Phase::backward);
  try {
    const std::lock_guard lock(lock_);
    synced_ = true;
    queue_->open_passes.fetch_add(1, std::memory_order_relaxed);
    ++passes_;
    clear_pass();
    const JoinState::Turn turn = join_->turn_of(join_index_);
    buffers_from_ = turn.buffers_from;
    weight_ = turn.weight;
    factor_ = turn.factor;
    const bool counts = weight_ > 0;  // else what was reduced before is no gradient of this pass
    follows_ = !counts;
    lacks_ = true;
    for (std::size_t i = 0; i < buckets_.members.size(); ++i) {
      autograd::Leaf& leaf = *buckets_.members[i].leaf;
      fill_absent(i, counts);
      leaf.set_fresh(leaf.fresh() && counts);
      if (!find_unused_) {
        leaf.adopt_home();  // the others have one
      }
    }
  } catch (const std::exception& error) {
    const std::lock_guard lock(lock_);
    fail_pass(error);
    throw;
  }
  on_pass_end();
  on_pass_done();
}

void Reducer::note_samples(std::int64_t samples, bool is_first) {
  check<AutogradError>(join_ != nullptr && samples != detail::kUncounted,
                       "DistributedDataParallel: the forward pass was {} a Join, and its backward pass {}; both belong "
                       "into the same scope",
                       join_ != nullptr ? "outside of" : "in", join_ != nullptr ? "in it" : "after its finish()");
  if (is_first) {
    samples_ = samples;
    join_->begin_pass(join_index_, samples);
  }
  check<AutogradError>(samples == samples_,
                       "DistributedDataParallel: in a Join one backward pass goes through forward passes of {} and {} "
                       "samples; say before each how many samples the loss is the mean of: join.samples(count)",
                       samples_, samples);
}

// Gradients of another number of samples than the others have.
void Reducer::weigh(std::size_t bucket) {
  if (weight_ != 1) {
    scale(buckets_.ranges[bucket].gradients, weight_);
  }
}

}  // namespace tandem::inline v0::parallel

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/step_times.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/distributed/buffer_sync.h>
#include <tandem/parallel/distributed/join_state.h>
#include <tandem/parallel/distributed/reducer.h>
#include <tandem/parallel/exception_text.h>
#include <tandem/tensor/raw.h>

// How a reducer's backward pass ends, or fails.

namespace tandem::inline v0::parallel {

using autograd::Leaf;

namespace {

// What a rank has of a parameter that may be unused: a gradient that was not reduced yet, or one that was.
constexpr std::int32_t kGiven = 2;
constexpr std::int32_t kKept = 1;

}  // namespace

void Reducer::on_pass_end() {
  std::shared_ptr<Reducer> self;  // let go of after the lock
  const std::lock_guard lock(lock_);
  try {
    end_pass();
  } catch (...) {
    self = std::move(self_);
    throw;
  }
}

void Reducer::on_pass_done() {
  std::shared_ptr<Reducer> self;
  std::vector<Leaf*> hooked;
  {
    const std::lock_guard lock(lock_);
    self = std::move(self_);
    if (synced_) {
      hooked = leaves_with_hooks();
    }
  }
  run_post_hooks(hooked);  // not under the lock: they may begin another pass
}

void Reducer::on_pass_failed(const std::exception& failure) {
  std::shared_ptr<Reducer> self;
  const std::lock_guard lock(lock_);
  self = std::move(self_);
  if (pass_ != nullptr) {
    fail_pass(failure);
  } else {
    refuse_pass(failure, synced_);  // its gradients are those of all ranks, but its hooks run on the others only
  }
}

void Reducer::end_pass() {
  pass_ = nullptr;
  if (!synced_) {
    if (join_ != nullptr) {
      join_->end_local_pass(join_index_);
    }
    return;
  }
  queue_->open_passes.fetch_sub(1, std::memory_order_relaxed);
  try {
    finish_pass();
  } catch (...) {
    if (size_ > 1 && !queue_->is_dead()) {
      queue_->abort(detail::text_of_exception());
    }
    forget_pass();
    throw;
  }
}

void Reducer::fail_pass(const std::exception& failure) {
  pass_ = nullptr;
  if (synced_) {
    queue_->open_passes.fetch_sub(1, std::memory_order_relaxed);
    refuse_pass(failure, true);
    forget_pass();
  }
}

// On this rank alone the pass fails: the others would wait for its gradients, or take the next pass for this one.
void Reducer::refuse_pass(const std::exception& failure, bool synced) {
  if (synced && size_ > 1) {
    queue_->abort(fmt::format("its backward pass failed: {}", failure.what()));
  }
}

// Whether it has got a new gradient, on some rank.
bool Reducer::is_given(std::size_t member) const { return !used_ || used_->span<std::int32_t>()[member] == kGiven; }

// Of those that have.
std::vector<Leaf*> Reducer::leaves_with_hooks() const {
  std::vector<Leaf*> leaves;
  for (std::size_t i = 0; i < buckets_.members.size(); ++i) {
    Leaf* leaf = buckets_.members[i].leaf;
    if (!leaf->post_hooks.empty() && is_given(i)) {
      leaves.push_back(leaf);
    }
  }
  return leaves;
}

// They see what an optimiser would.
void Reducer::run_post_hooks(const std::vector<Leaf*>& leaves) {
  try {
    for (Leaf* leaf : leaves) {
      if (leaf->fresh()) {  // the hook of another one may have reset it
        leaf->run_post_hooks();
      }
    }
  } catch (...) {
    if (size_ > 1) {
      queue_->abort(fmt::format("a hook of a parameter failed: {}", detail::text_of_exception()));
    }
    throw;
  }
}

void Reducer::finish_pass() {
  const PhaseScope timed(Phase::reduce);
  std::vector<std::size_t> absent;
  for (std::size_t i = 0; i < buckets_.members.size(); ++i) {
    if (ready_[i] != passes_) {
      absent.push_back(i);
    }
  }
  if (!absent.empty() && !find_unused_) {
    fail_unused(absent);
  }
  for (const std::size_t member : absent) {
    fill_absent(member, true);
  }
  const std::size_t last = buckets_.ranges.size() - 1;
  while (started_ < last) {
    start(started_++);
  }
  if (hook_) {
    start(last);
    finish_hooks();
  } else {
    weigh(last);
  }
  if (!hook_ && !plans_.empty()) {
    plans_[last].run();  // after those that have left
    for (std::size_t b = 0; b < last; ++b) {
      plans_[b].wait();
    }
  }
  if (factor_ != 1) {
    scale_gradients(factor_);
  }
  agree_on_used();
  for (std::size_t i = 0; i < buckets_.members.size(); ++i) {
    if (buckets_.members[i].leaf->fresh() && is_given(i)) {
      buckets_.members[i].leaf->note_rewritten();
    }
  }
  if (buffers_) {
    buffers_->run(group_, buffers_from_);
  }
  reduced_ = passes_;
}

// A parameter that no rank has a new gradient of keeps what all have, bit by bit: none, or an old one, whose mean over
// the ranks, or what a hook makes of it, may be another. One that some have gets the mean, and is then a new one. Who
// only follows does as the others.
void Reducer::agree_on_used() {
  if (!used_) {
    return;
  }
  const std::size_t count = buckets_.members.size();
  const auto both = used_->mutable_span<std::int32_t>();
  const auto used = both.first(count);              // the most that a rank has
  const auto negated = both.subspan(count, count);  // the least
  both.back() = lacks_ ? 1 : 0;
  for (std::size_t i = 0; i < count; ++i) {
    used[i] = has_new(i) ? kGiven : 0;
  }
  if (follows_) {
    std::ranges::fill(negated, -kGiven);
  } else {
    for (const Kept& kept : kept_) {
      used[kept.member] = kKept;
    }
    std::ranges::transform(used, negated.begin(), std::negate());
  }
  if (agree_) {
    agree_->run();
  }
  if (agree_ && reduced_ == 0 && rank_ == 0 && used_->span<std::int32_t>().back() == 0) {
    core::warn(
        "DistributedDataParallel: find_unused_parameters was given, and in the first backward pass every parameter had "
        "a gradient on every rank: it costs an all-reduce in each pass; leave it out unless later passes differ");
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (used[i] == kKept && negated[i] == 0) {
      used[i] = kGiven;
    }
    if (used[i] == kGiven) {
      buckets_.members[i].leaf->adopt_home();
    }
  }
  for (const Kept& kept : kept_) {
    if (used[kept.member] != kGiven) {
      Leaf& leaf = *buckets_.members[kept.member].leaf;
      tandem::detail::copy(gradient_of(kept.member), kept.gradient);
      leaf.set_fresh(used[kept.member] == kKept);
      leaf.set_grad_version(kept.version);  // for graphs of other passes it is what it was
    }
  }
  kept_.clear();
}

// What is there by now is of this rank alone, or of some ranks: no optimiser is to see it.
void Reducer::forget_pass() noexcept {
  finishers_.clear();
  kept_.clear();
  const auto wait_for = [](PlannedAllReduce& plan) {
    try {
      plan.wait();
    } catch (const Error&) {  // of which the first is on its way up
    }
  };
  std::ranges::for_each(plans_, wait_for);
  if (compare_) {
    wait_for(*compare_);
  }
  for (const BucketMember& member : buckets_.members) {
    member.leaf->set_fresh(false);
  }
}

}  // namespace tandem::inline v0::parallel

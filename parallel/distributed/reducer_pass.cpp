#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/distributed/buffer_sync.h>
#include <tandem/parallel/distributed/distributed_data_parallel.h>
#include <tandem/parallel/distributed/join_state.h>
#include <tandem/parallel/distributed/reducer.h>
#include <tandem/parallel/exception_text.h>
#include <tandem/core/step_times.h>
#include <tandem/tensor/raw.h>

// A backward pass, as the reducer sees it: it begins, brings gradients, and ends or fails.

namespace tandem::inline v0::parallel {

using autograd::Leaf;

namespace {

std::string list(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 12;
  const std::size_t shown = std::min(names.size(), kShown);
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(shown);
  const std::string text = fmt::format("'{}'", fmt::join(names.begin(), end, "', '"));
  return shown == names.size() ? text : fmt::format("{} and {} more", text, names.size() - shown);
}

// What a rank has of a parameter that may be unused: a gradient of this pass, or of one before.
constexpr std::int32_t kGiven = 2;
constexpr std::int32_t kKept = 1;

}  // namespace

void Reducer::begin_pass(const autograd::Node& node, bool synced, std::int64_t samples) {
  if (synced) {
    check_group();
  }
  const std::lock_guard lock(lock_);
  const void* pass = node.pass.load(std::memory_order_relaxed);
  const bool is_first = pass != pass_;
  if (is_first && pass_ != nullptr) {
    const AutogradError error(
        "DistributedDataParallel: another backward pass through the wrapper is still running (of another thread, or "
        "around a hook); it has one at a time");
    refuse_pass(error, synced);
    throw AutogradError(error);
  }
  if (is_first) {
    self_ = shared_from_this();
    pass_ = pass;
    synced_ = false;
    ++passes_;
    autograd::listen_to_pass(node, *this);
  }
  const bool arms = synced && !synced_;
  synced_ = synced_ || synced;
  if (arms) {
    queue_->open_passes.fetch_add(1, std::memory_order_relaxed);
  }
  if (join_ != nullptr || samples != detail::kUncounted) {
    note_samples(samples, is_first);
  }
  if (arms) {
    arm();
  }
}

// On this rank alone the pass fails: the others would wait for its gradients, or take the next pass for this one.
void Reducer::refuse_pass(const std::exception& failure, bool synced) {
  if (synced && size_ > 1) {
    queue_->abort(fmt::format("its backward pass failed: {}", failure.what()));
  }
}

void Reducer::clear_pass() {
  started_ = 0;
  finishers_.clear();
  for (std::size_t b = 0; b < pending_.size(); ++b) {
    pending_[b] = buckets_.ranges[b].last - buckets_.ranges[b].first;
  }
}

// From here on the gradients of this pass leave as they come.
void Reducer::arm() {
  clear_pass();
  std::vector<std::size_t> absent;
  for (std::size_t i = 0; i < buckets_.members.size(); ++i) {
    if (buckets_.members[i].leaf->pass.load(std::memory_order_relaxed) != pass_) {
      absent.push_back(i);
    }
  }
  if (!absent.empty() && !find_unused_) {
    fail_unused(absent);
  }
  if (join_ != nullptr) {
    const JoinState::Turn turn = join_->reduce(join_index_);
    weight_ = turn.weight;
    factor_ = turn.factor;
    buffers_from_ = turn.buffers_from;
  }
  for (const std::size_t member : absent) {
    fill_absent(member);
  }
}

bool Reducer::on_gradient(Leaf& leaf) {
  const std::lock_guard lock(lock_);
  const std::size_t member = leaf.observed_as;
  if (leaf.pass.load(std::memory_order_relaxed) != pass_) {
    leaf.set_fresh(false);
    fail<AutogradError>(
        "DistributedDataParallel: parameter '{}' got a gradient in a backward pass in which no output of the wrapped "
        "module took part, as when ddp.module() is called itself: it would be that of this rank alone. Call ddp(...), "
        "and within ddp.no_sync() where gradients are to stay local",
        buckets_.members[member].name);
  }
  arrived_[member] = passes_;
  if (synced_) {
    mark_ready(member);
    start_ready();
  }
  return synced_;
}

void Reducer::mark_ready(std::size_t member) {
  if (std::exchange(ready_[member], passes_) == passes_) {
    return;
  }
  --pending_[buckets_.members[member].bucket];
}

// Of several wrappers in one pass buckets leave at its end: lanes of several devices reach them in no fixed order. The
// last one leaves there anyway, where there is nothing else to do.
void Reducer::start_ready() {
  while (started_ + 1 < pending_.size() && pending_[started_] == 0 &&
         queue_->open_passes.load(std::memory_order_relaxed) == 1) {
    start(started_++);
  }
}

// A gradient that this pass does not give: what was accumulated before counts, or 0.
void Reducer::fill_absent(std::size_t index) {
  const BucketMember& member = buckets_.members[index];
  if (!member.leaf->fresh()) {
    const ParameterStore::Segment& segment = member.place.store->segments()[member.place.segment];
    tandem::detail::fill(tandem::detail::narrow(member.place.store->gradients(), 0, segment.offset, segment.padded), 0);
  }
  mark_ready(index);
}

void Reducer::start(std::size_t bucket) {
  weigh(bucket);
  if (hook_) {
    finishers_.push_back(hook_(group_, {bucket, buckets_.ranges.size(), Tensor(buckets_.ranges[bucket].gradients)}));
  } else if (!plans_.empty()) {
    plans_[bucket].start();
  }
}

void Reducer::on_pass_end(const std::exception* failure) {
  std::shared_ptr<Reducer> self;
  std::vector<Leaf*> hooked;
  {
    const std::lock_guard lock(lock_);
    self = std::move(self_);
    end_pass(failure);
    if (synced_ && failure == nullptr) {
      hooked = leaves_with_hooks();
    }
  }
  run_post_hooks(hooked);  // not under the lock: they may begin another pass
}

void Reducer::end_pass(const std::exception* failure) {
  pass_ = nullptr;
  if (!synced_) {
    if (join_ != nullptr && failure == nullptr) {
      join_->end_local_pass(join_index_);
    }
    return;
  }
  queue_->open_passes.fetch_sub(1, std::memory_order_relaxed);
  if (failure == nullptr) {
    try {
      finish_pass();
      return;
    } catch (...) {
      if (size_ > 1 && !queue_->is_dead()) {
        queue_->abort(detail::text_of_exception());
      }
      forget_pass();
      throw;
    }
  }
  refuse_pass(*failure, synced_);
  forget_pass();
}

// Those that the pass gave a gradient to, on some rank.
std::vector<Leaf*> Reducer::leaves_with_hooks() const {
  std::vector<Leaf*> leaves;
  for (std::size_t i = 0; i < buckets_.members.size(); ++i) {
    Leaf* leaf = buckets_.members[i].leaf;
    const bool has_new = !find_unused_ || (agree_ ? used_->span<std::int32_t>()[i] == kGiven : arrived_[i] == passes_);
    if (!leaf->post_hooks.empty() && has_new) {
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
    fill_absent(member);
  }
  const std::size_t last = buckets_.ranges.size() - 1;
  while (started_ < last) {
    start(started_++);
  }
  if (hook_) {
    start(last);
    for (const std::function<void()>& finish : finishers_) {
      if (finish) {
        finish();
      }
    }
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
  for (const BucketMember& member : buckets_.members) {
    if (member.leaf->fresh()) {
      member.leaf->note_rewritten();
    }
  }
  if (buffers_) {
    buffers_->run(group_, buffers_from_);
  }
}

// A parameter that no rank has a gradient of keeps what it has: none, or an old one. One that some have gets the mean.
void Reducer::agree_on_used() {
  if (!agree_) {
    return;
  }
  const auto used = used_->mutable_span<std::int32_t>();
  for (std::size_t i = 0; i < used.size(); ++i) {
    used[i] = arrived_[i] == passes_ ? kGiven : buckets_.members[i].leaf->fresh() ? kKept : 0;
  }
  agree_->run();
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i] != 0) {
      buckets_.members[i].leaf->adopt_home();
    }
  }
}

// What is there by now is of this rank alone, or of some ranks: no optimiser is to see it.
void Reducer::forget_pass() noexcept {
  finishers_.clear();
  for (PlannedAllReduce& plan : plans_) {
    try {
      plan.wait();
    } catch (const CommError&) {  // of which the first is on its way up
    }
  }
  for (const BucketMember& member : buckets_.members) {
    member.leaf->set_fresh(false);
  }
}

void Reducer::fail_unused(const std::vector<std::size_t>& members) {
  std::vector<std::string> names;
  for (const std::size_t member : members) {
    names.push_back(buckets_.members[member].name);
  }
  fail<AutogradError>(
      "DistributedDataParallel: rank {} of {} has no gradient of {} {} in this backward pass: {}. Each parameter must "
      "take part in each loss; freeze those that never do, before wrapping, or pass {{.find_unused_parameters = true}}",
      rank_, size_, names.size(), names.size() == 1 ? "parameter" : "parameters", list(names));
}

}  // namespace tandem::inline v0::parallel

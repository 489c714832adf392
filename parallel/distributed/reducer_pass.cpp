#include <tandem/parallel/distributed/reducer_pass.h>

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/span.h>
#include <tandem/parallel/distributed/distributed_data_parallel.h>
#include <tandem/parallel/distributed/reducer.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

using autograd::Leaf;

namespace {

// "'fc1.bias', 'fc1.weight' and 3 more"
std::string names_of(const std::vector<std::size_t>& absent, const std::vector<BucketMember>& members) {
  constexpr std::size_t kShown = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(absent.size(), kShown); ++i) {
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", members[absent[i]].name);
  }
  return absent.size() <= kShown ? text : fmt::format("{} and {} more", text, absent.size() - kShown);
}

}  // namespace

ReducerPass::ReducerPass(std::shared_ptr<Reducer> reducer, PassId id) : reducer_(std::move(reducer)), id_(id) {
  reducer_->buckets_.begin_pass();
}

void ReducerPass::add_output(bool synced, std::int64_t samples) {
  if (synced) {
    sync();
  }
  JoinState* join = reducer_->join();
  check<AutogradError>((join != nullptr) == (samples != detail::kUncounted),
                       "DistributedDataParallel: the forward pass was {} a Join, and its backward pass {}; both belong "
                       "into the same scope",
                       join != nullptr ? "outside of" : "in", join != nullptr ? "in it" : "after its finish()");
  if (join == nullptr) {
    return;
  }
  if (!samples_) {
    samples_ = samples;
    join->begin_pass(reducer_->join_index_, samples);
  }
  check<AutogradError>(samples == *samples_,
                       "DistributedDataParallel: in a Join one backward pass goes through forward passes of {} and {} "
                       "samples; say before each how many samples the loss is the mean of: join.samples(count)",
                       *samples_, samples);
}

void ReducerPass::sync() {
  if (!std::exchange(synced_, true)) {
    reducer_->link_.open_passes().fetch_add(1, std::memory_order_relaxed);
    schedule_ = BucketSchedule(reducer_->buckets_);
  }
}

// Buckets leave from the first gradient on, so the weights must be known before.
void ReducerPass::begin() {
  if (reducer_->sharded_) {
    reducer_->sharded_->check_pass(synced_);
  }
  if (ParameterParts* parts = reducer_->parts(); parts != nullptr) {
    parts->begin(ParameterParts::Pass::backward);
    uses_parts_ = true;
  }
  if (!synced_) {
    return;
  }
  lacks_ = !reducer_->buckets_.is_first_pass();
  settle_absent();
  if (JoinState* join = reducer_->join(); join != nullptr) {
    weights_ = join->reduce(reducer_->join_index_);
  }
}

void ReducerPass::follow() {
  sync();
  weights_ = reducer_->join()->weights_of(reducer_->join_index_);
  const bool counts = weights_.mine > 0;  // otherwise an earlier reduced value is not a gradient of this pass
  follows_ = !counts;
  lacks_ = true;
  for (std::size_t i = 0; i < reducer_->buckets_.members().size(); ++i) {
    Leaf& leaf = *reducer_->buckets_.members()[i].leaf;
    fill_absent(i, counts);
    leaf.set_fresh(leaf.fresh() && counts);
    if (!reducer_->used_.may_be_unused()) {
      leaf.adopt_home();  // the other ranks have one
    }
  }
}

// Treats the members for which this pass brings no gradient: at its beginning those that the graph does not reach, at
// its end also those that the graph reached without adding to their gradient.
void ReducerPass::settle_absent() {
  const std::vector<BucketMember>& members = reducer_->buckets_.members();
  const auto is_expected = [&](const autograd::Leaf& leaf) {
    return id_ != nullptr && leaf.pass.load(std::memory_order_relaxed) == id_;
  };
  std::vector<std::size_t> absent;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!schedule_.is_ready(i) && !is_expected(*members[i].leaf)) {
      absent.push_back(i);
    }
  }
  if (!absent.empty() && !reducer_->used_.may_be_unused()) {
    tandem::fail<AutogradError>(
        "DistributedDataParallel: rank {} has no gradient of {} {} in this backward pass: {}. Each parameter "
        "must take part in each loss; freeze those that never do, before wrapping, or pass "
        "{{.find_unused_parameters = true}} [TDM-E615]",
        reducer_->link_.names().rank(reducer_->link_.rank()), absent.size(),
        absent.size() == 1 ? "parameter" : "parameters", names_of(absent, members));
  }
  lacks_ = lacks_ || !absent.empty();
  for (const std::size_t member : absent) {
    fill_absent(member, true);
  }
}

// The gradient of a member that this pass does not reach is the one accumulated before, or 0.
void ReducerPass::fill_absent(std::size_t member, bool counts) {
  const Buckets& buckets = reducer_->buckets_;
  Leaf& leaf = *buckets.members()[member].leaf;
  if (reducer_->used_.may_be_unused() && leaf.fresh() && !(counts && buckets.has_new(member))) {
    kept_.push_back(reducer_->used_.keep(member));
    if (reducer_->exchange_.may_change_bytes()) {
      leaf.note_rewritten();  // until the copy is back, and a graph of this pass may have saved the gradient
    }
  }
  if (!leaf.fresh() || !counts) {
    tandem::detail::fill(buckets.memory_of(member), 0);
  }
  schedule_.mark_ready(member);
}

void ReducerPass::on_gradient(std::size_t member) {
  reducer_->buckets_.note_arrival(member);
  if (uses_parts_) {
    reducer_->parts()->note_gradient(member);
  }
  if (synced_) {
    schedule_.mark_ready(member);
  }
}

// If several wrappers are in one pass, their buckets leave at its end: lanes of several devices reach the wrappers in
// no fixed order.
void ReducerPass::send_ready() {
  while (synced_ && schedule_.next_may_leave() && reducer_->link_.open_passes().load(std::memory_order_relaxed) == 1) {
    send(schedule_.take());
  }
}

bool ReducerPass::completes_bucket(std::size_t member) const {
  return synced_ && reducer_->exchange_.may_change_bytes() && schedule_.is_complete(member);
}

void ReducerPass::send(std::size_t bucket) {
  reducer_->buckets_.scale(bucket, weights_.mine);
  reducer_->exchange_.start(bucket, id_);
}

void ReducerPass::end() {
  close();
  if (!synced_) {
    if (JoinState* join = reducer_->join(); join != nullptr) {
      join->end_local_pass(reducer_->join_index_);
    }
    reducer_->versions_after_local_pass_ = reducer_->buckets_.parameter_versions();
    return;
  }
  try {
    reduce();
    reducer_->look_at_steps();
  } catch (...) {
    if (!reducer_->link_.is_dead()) {
      reducer_->link_.abort(detail::text_of_exception());
    }
    forget();
    throw;
  }
}

// After close() no gradient belongs to this pass, and passes of other wrappers may send their buckets at any time.
void ReducerPass::close() {
  id_ = nullptr;
  if (std::exchange(uses_parts_, false)) {
    reducer_->parts()->end();
  }
  if (synced_) {
    reducer_->link_.open_passes().fetch_sub(1, std::memory_order_relaxed);
  }
}

void ReducerPass::reduce() {
  const SpanScope timed(Phase::reduce);
  Buckets& buckets = reducer_->buckets_;
  settle_absent();
  while (!schedule_.only_last_is_left()) {
    send(schedule_.take());
  }
  buckets.scale(schedule_.take(), weights_.mine);
  reducer_->exchange_.finish();
  buckets.scale_all(weights_.mean);
  reducer_->used_.agree(kept_, lacks_, follows_);
  for (std::size_t i = 0; i < buckets.members().size(); ++i) {
    Leaf& leaf = *buckets.members()[i].leaf;
    if (leaf.fresh() && reducer_->used_.is_given(i)) {
      leaf.note_rewritten();
    }
  }
  if (reducer_->sharded_) {
    reducer_->sharded_->note_reduced();
  }
  reducer_->module_.broadcast_buffers(reducer_->link_.group(), weights_.buffers_from);
  buckets.note_reduced();
  reducer_->versions_after_local_pass_.reset();
}

std::vector<Leaf*> ReducerPass::leaves_with_hooks() const {
  std::vector<Leaf*> leaves;
  for (std::size_t i = 0; synced_ && i < reducer_->buckets_.members().size(); ++i) {
    Leaf* leaf = reducer_->buckets_.members()[i].leaf;
    if (!leaf->post_hooks.empty() && reducer_->used_.is_given(i)) {
      leaves.push_back(leaf);
    }
  }
  return leaves;
}

void ReducerPass::run_post_hooks(const std::vector<Leaf*>& leaves) const {
  try {
    for (Leaf* leaf : leaves) {
      if (leaf->fresh()) {  // another wrapper's hook may have reset it
        leaf->run_post_hooks();
      }
    }
  } catch (...) {
    reducer_->link_.abort(fmt::format("a hook of a parameter failed: {}", detail::text_of_exception()));
    throw;
  }
}

// A pass that has ended keeps its gradients, the means over the ranks; but users' hooks will run on the other ranks
// only, so the group ends in any case.
void ReducerPass::fail(const std::exception& failure) {
  reducer_->refuse_pass(failure, synced_);
  if (id_ == nullptr) {
    return;
  }
  close();
  if (synced_) {
    forget();
  }
}

// Some gradients are this rank's alone, some are means over the ranks: no optimiser may see a mixture.
void ReducerPass::forget() noexcept {
  kept_.clear();
  reducer_->exchange_.give_up();
  for (const BucketMember& member : reducer_->buckets_.members()) {
    member.leaf->set_fresh(false);
  }
}

}  // namespace tandem::inline v0::parallel

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/step_times.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/distributed/distributed_data_parallel.h>
#include <tandem/parallel/distributed/join_state.h>
#include <tandem/parallel/distributed/reducer.h>
#include <tandem/tensor/raw.h>

// A backward pass, as the reducer sees it: it begins, and brings gradients.

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

}  // namespace

// It runs under the lock, for which another pass would wait; on whatever thread that is.
void Reducer::refuse_within_hook(const void* pass) const {
  check<AutogradError>(
      !hook_runs_.load(std::memory_order_acquire) || pass == pass_,
      "DistributedDataParallel: a backward pass through the wrapper or its parameters began while a comm "
      "hook of another one runs; a hook may reduce, and no more");
}

// A replay would bring gradients without telling.
void Reducer::refuse_in_capture(bool synced) {
  if (tandem::detail::step_recorder() != nullptr) {
    const CaptureError error(
        "DistributedDataParallel: a captured step cannot run its backward pass: a replay would bring gradients unseen");
    refuse_pass(error, synced);
    throw CaptureError(error);
  }
}

void Reducer::begin_pass(const autograd::Node& node, bool synced, std::int64_t samples) {
  if (synced) {
    check_group();
  }
  const void* pass = node.pass.load(std::memory_order_relaxed);
  refuse_within_hook(pass);
  refuse_in_capture(synced);
  const std::lock_guard lock(lock_);
  const bool is_first = pass != pass_;
  if (is_first && self_ != nullptr) {
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
    follows_ = false;
    autograd::listen_to_pass(node, *this);
  }
  if (synced && !std::exchange(synced_, true)) {
    queue_->open_passes.fetch_add(1, std::memory_order_relaxed);
  }
  if (join_ != nullptr || samples != detail::kUncounted) {
    note_samples(samples, is_first);
  }
}

void Reducer::on_pass_begin() {
  const std::lock_guard lock(lock_);
  if (synced_) {
    arm();
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
  lacks_ = !absent.empty() || passes_ > kBeforeWrapping + 1;
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
    fill_absent(member, true);
  }
}

bool Reducer::on_gradient(Leaf& leaf) {
  refuse_within_hook(leaf.pass.load(std::memory_order_relaxed));
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

// Whether a backward pass has given it since what was there was reduced.
bool Reducer::has_new(std::size_t member) const {
  return buckets_.members[member].leaf->fresh() && arrived_[member] > reduced_;
}

tandem::detail::View Reducer::gradient_of(std::size_t member) const {
  const ParameterStore::Place& place = buckets_.members[member].place;
  const ParameterStore::Segment& segment = place.store->segments()[place.segment];
  return tandem::detail::narrow(place.store->gradients(), 0, segment.offset, segment.padded);
}

// A gradient that this pass does not give: what was accumulated before counts, or 0.
void Reducer::fill_absent(std::size_t member, bool counts) {
  Leaf& leaf = *buckets_.members[member].leaf;
  const tandem::detail::View gradient = gradient_of(member);
  if (find_unused_ && leaf.fresh() && !(counts && has_new(member))) {
    tandem::detail::View old = tandem::detail::empty_view(gradient.sizes, gradient.dtype, gradient.device());
    tandem::detail::copy(old, gradient);
    kept_.push_back({member, std::move(old), leaf.grad_version()});
    if (size_ > 1 || hook_) {
      leaf.note_rewritten();  // it is, for a while, and a graph of this pass may have saved it
    }
  }
  if (!leaf.fresh() || !counts) {
    tandem::detail::fill(gradient, 0);
  }
  mark_ready(member);
}

void Reducer::start(std::size_t bucket) {
  weigh(bucket);
  if (hook_) {
    run_hook(bucket);
  } else if (!plans_.empty()) {
    plans_[bucket].start();
  }
}

namespace {

class FlagScope {
 public:
  explicit FlagScope(std::atomic<bool>& flag) noexcept : flag_(flag) { flag_.store(true, std::memory_order_release); }
  ~FlagScope() { flag_.store(false, std::memory_order_release); }
  FlagScope(const FlagScope&) = delete;
  FlagScope& operator=(const FlagScope&) = delete;

 private:
  std::atomic<bool>& flag_;
};

}  // namespace

// What hooks call looks alike for all wrappers: a plan of this one tells whether all ranks are in its pass.
void Reducer::run_hook(std::size_t bucket) {
  const PhaseScope timed(Phase::reduce);
  const FlagScope runs(hook_runs_);
  if (bucket == 0 && compare_) {
    compare_->start();
  }
  finishers_.push_back(hook_(group_, {bucket, buckets_.ranges.size(), Tensor(buckets_.ranges[bucket].gradients)}));
}

void Reducer::finish_hooks() {
  const FlagScope runs(hook_runs_);
  if (compare_) {
    compare_->wait();
  }
  for (const std::function<void()>& finish : finishers_) {
    if (finish) {
      finish();
    }
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

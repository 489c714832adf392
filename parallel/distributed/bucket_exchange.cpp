#include <tandem/parallel/distributed/bucket_exchange.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/failpoint.h>
#include <tandem/core/span.h>
#include <tandem/parallel/comm/on_cpu.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

namespace {

// Says which pass a hook runs in, while it runs.
class HookScope {
 public:
  HookScope(std::atomic<const void*>& runs_in, const void* pass) noexcept : runs_in_(runs_in) {
    runs_in_.store(pass, std::memory_order_release);
  }
  ~HookScope() { runs_in_.store(nullptr, std::memory_order_release); }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  std::atomic<const void*>& runs_in_;
};

}  // namespace

BucketSchedule::BucketSchedule(const Buckets& buckets)
    : members_(&buckets.members()), ready_(buckets.members().size()) {
  for (const BucketRange& range : buckets.ranges()) {
    waiting_.push_back(range.last - range.first);
  }
}

void BucketSchedule::mark_ready(std::size_t member) {
  if (!ready_[member]) {
    ready_[member] = true;
    --waiting_[(*members_)[member].bucket];
  }
}

BucketExchange::BucketExchange(const GroupLink& link, const Buckets& buckets, bool scatters)
    : link_(link), buckets_(buckets) {
  if (link.size() > 1) {
    for (std::size_t b = 0; b < buckets.ranges().size(); ++b) {
      const tandem::detail::View& gradients = buckets.ranges()[b].gradients;
      const PlanName name{.purpose = fmt::format("{} of {}", buckets.name(b), link.wrapper_name()),
                          .advice =
                              "All ranks call backward() through the same wrappers in the same order; with "
                              "unequal numbers of batches they need a Join"};
      plans_.push_back(scatters ? plan_reduce_parts(link.group(), gradients, name)
                                : CutPlan({link.group().plan_all_reduce(gradients, ReduceOp::avg, name)}));
    }
    turn_ = zeros({1}, on_cpu(DType::i32));
    compare_.emplace(
        link.group().plan_all_reduce(turn_.raw(), ReduceOp::max,
                                     {.purpose = fmt::format("before the comm hook of {}", link.wrapper_name()),
                                      .advice = "A hook is registered on all ranks or on none"}));
  }
}

void BucketExchange::set_hook(CommHook hook) {
  check<ConfigError>(static_cast<bool>(hook), "register_comm_hook: the hook is an empty function");
  check<ConfigError>(!hook_, "register_comm_hook: there is a hook already");
  hook_ = std::move(hook);
}

void BucketExchange::refuse_within_hook(const void* pass) const {
  const void* runs_in = hook_runs_in_.load(std::memory_order_acquire);
  check<AutogradError>(
      runs_in == nullptr || runs_in == pass,
      "DistributedDataParallel: a backward pass through the wrapper or its parameters began while a comm "
      "hook of another one runs; a hook may reduce, and no more");
}

void BucketExchange::start(std::size_t bucket, const void* pass) {
  core::failpoint("bucket");
  if (!hook_) {
    if (!plans_.empty()) {
      plans_[bucket].start();
    }
    return;
  }
  const SpanScope timed(Phase::reduce);
  const HookScope runs(hook_runs_in_, pass != nullptr ? pass : this);
  if (bucket == 0 && compare_) {
    compare_->start();
  }
  finishers_.push_back(
      hook_(link_.group(), {bucket, buckets_.ranges().size(), Tensor(buckets_.ranges()[bucket].gradients)}));
}

void BucketExchange::finish() {
  const std::size_t last = buckets_.ranges().size() - 1;
  if (hook_) {
    start(last, nullptr);
    const HookScope runs(hook_runs_in_, this);
    if (compare_) {
      compare_->wait();
    }
    for (const auto& finish : std::exchange(finishers_, {})) {
      if (finish) {
        finish();
      }
    }
  } else if (!plans_.empty()) {
    core::failpoint("bucket");
    plans_[last].run();  // after those that have left
    for (std::size_t b = 0; b < last; ++b) {
      plans_[b].wait();
    }
  }
}

void BucketExchange::give_up() noexcept {
  finishers_.clear();
  const auto wait_for = [](auto& plan) {
    try {
      plan.wait();
    } catch (const Error&) {
    }
  };
  std::ranges::for_each(plans_, wait_for);
  if (compare_) {
    wait_for(*compare_);
  }
}

}  // namespace tandem::inline v0::parallel

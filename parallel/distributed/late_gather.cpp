#include <tandem/parallel/distributed/late_gather.h>

#include <algorithm>
#include <exception>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/span.h>
#include <tandem/core/thread_state.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::parallel {

using tandem::detail::Storage;

namespace {

class BrokenGuard final : public tandem::detail::StorageGuard {
 public:
  void on_use(const Storage&) override {
    fail<ConfigError>(
        "the elements of a parameter are partly those of before the last step, because the ranks' exchange after it "
        "failed (DistributedDataParallel with shard). Make the module anew and load a checkpoint");
  }
};

// Outlives all storages.
constinit BrokenGuard broken_guard;

}  // namespace

LateGather::LateGather(ProcessGroup& group, const Buckets& buckets, std::size_t bucket, const PlanName& name)
    : gather_(plan_gather_parts(group, buckets.values_of(bucket), name)),
      may_be_late_(!group.queue()->backend().shares_memory() &&
                   buckets.ranges()[bucket].gradients.device().type == DeviceType::cpu) {
  if (!may_be_late_) {
    return;
  }
  for (std::size_t i = buckets.ranges()[bucket].first; i < buckets.ranges()[bucket].last; ++i) {
    storages_.push_back(buckets.members()[i].parameter.unresolved()->view.storage);
    storages_.back()->set_guard(this);
  }
}

LateGather::~LateGather() {
  const bool was_told = told_;
  try {
    finish();
  } catch (const CommError&) {
  }
  if (error_ && !was_told && std::uncaught_exceptions() == 0) {
    core::warn(
        fmt::format("the last step of an optimiser is not whole on this rank, and its parameters cannot be used: {}",
                    error_->what()));
  }
  for (const core::Ref<Storage>& storage : storages_) {
    storage->set_guard(error_ ? &broken_guard : nullptr);
  }
}

void LateGather::start() {
  const bool is_in_steps =
      tandem::detail::step_recorder() != nullptr || std::ranges::any_of(storages_, &Storage::watched);
  if (!may_be_late_ || is_in_steps) {
    run();
    return;
  }
  state_.store(State::coming, std::memory_order_release);  // also if a part of it cannot start
  gather_.start();
}

void LateGather::finish() {
  if (state_.load(std::memory_order_acquire) == State::here) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (state_.load(std::memory_order_relaxed) == State::coming) {
    const SpanScope timed(Phase::reduce);
    core::ThreadState state = core::thread_state();  // what this thread runs meanwhile is no part of a step it records
    state.recorder = nullptr;
    state.observer = nullptr;
    const core::ThreadStateScope bare(state);
    try {
      gather_.wait();
    } catch (const CommError& error) {
      error_ = error;
    }
    state_.store(error_ ? State::failed : State::here, std::memory_order_release);
  }
  if (error_) {
    told_ = true;
    throw CommError(*error_);
  }
}

void LateGather::on_use(const Storage& /*storage*/) { finish(); }

}  // namespace tandem::inline v0::parallel

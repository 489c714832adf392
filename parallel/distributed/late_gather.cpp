#include <tandem/parallel/distributed/late_gather.h>

#include <algorithm>

#include <tandem/core/step_times.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::parallel {

using tandem::detail::Storage;

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
  try {
    finish();
  } catch (const Error&) {  // the group's next call tells it
  }
  for (const core::Ref<Storage>& storage : storages_) {
    storage->set_guard(nullptr);
  }
}

void LateGather::start() {
  const bool is_in_steps =
      tandem::detail::step_recorder() != nullptr || std::ranges::any_of(storages_, &Storage::watched);
  if (!may_be_late_ || is_in_steps) {
    run();
    return;
  }
  gather_.start();
  coming_.store(true, std::memory_order_release);
}

void LateGather::finish() {
  if (!coming_.load(std::memory_order_acquire)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (!coming_.load(std::memory_order_relaxed)) {
    return;
  }
  struct Ended {
    std::atomic<bool>& coming;
    ~Ended() { coming.store(false, std::memory_order_release); }
  } const ended{coming_};
  const PhaseScope timed(Phase::reduce);
  gather_.wait();
}

void LateGather::on_use(const Storage& /*storage*/) { finish(); }

}  // namespace tandem::inline v0::parallel

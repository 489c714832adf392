#pragma once

#include <memory>
#include <span>
#include <vector>

#include <tandem/graph/recording.h>
#include <tandem/tensor/tensor.h>

// Internal: a recorded step that can be run again.

namespace tandem::inline v0::graph {

class Replay {
 public:
  /// `outputs` are the results of the step. They change in each run, which their versions tell.
  Replay(std::unique_ptr<Recorded> recorded, std::shared_ptr<const Arena> arena, std::span<const Tensor> outputs);
  Replay(const Replay&) = delete;  // ops point into it
  Replay& operator=(const Replay&) = delete;

  /// Null while the step would still do the same; else what has changed. Asked only while step_epoch() is the same.
  const char* stale() const;
  /// One step.
  void run() const;

  std::size_t launches() const noexcept { return ops_.size() - recorded_->works.size(); }
  const Plan& plan() const noexcept { return arena_->plan; }

 private:
  struct Op {
    void (*run)(kernels::Context&, const void*);
    const void* args;
  };
  class DrawScope;
  void run_observed(kernels::LaunchObserver& observer) const;

  std::unique_ptr<Recorded> recorded_;
  std::shared_ptr<const Arena> arena_;
  core::Ref<detail::Storage> args_;
  std::vector<Op> ops_;
  std::vector<core::Ref<detail::Storage>> changed_;
  Device device_;
  bool one_device_ = true;
};

}  // namespace tandem::inline v0::graph

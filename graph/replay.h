#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include <tandem/graph/gpu_graph.h>
#include <tandem/graph/recording.h>
#include <tandem/kernels/pointwise_run.h>
#include <tandem/tensor/tensor.h>

// Internal: a recorded step that can be repeated.

namespace tandem::inline v0::graph {

class Replay {
 public:
  /// `outputs` are the results of the step. Each run changes them and increments their versions.
  Replay(std::unique_ptr<Recorded> recorded, std::shared_ptr<const Arena> arena, std::span<const Tensor> outputs);
  Replay(const Replay&) = delete;  // ops point into this object
  Replay& operator=(const Replay&) = delete;

  /// Returns null while the step would still do the same, else the change. Valid only while step_epoch() is unchanged.
  const char* stale() const;
  /// Runs one step.
  void run();

  std::size_t launches() const noexcept { return ops_.size() - works_.size(); }
  std::size_t fused_updates() const;
  std::size_t joined_launches() const noexcept { return joined_; }
  const Plan& plan() const noexcept { return arena_->plan; }
  /// Number of GPU graphs that a run launches.
  std::size_t gpu_graphs() const noexcept;

 private:
  struct Op {
    void (*run)(kernels::Context&, const void*);
    const void* args;
    const core::ModuleScope* module;
    std::size_t launches = 1;  // of a run, which takes the place of so many ops
  };
  /// Ops that follow each other, with the host work among them.
  struct Part {
    std::size_t first, end;
    std::size_t first_work, end_work;  // in works_
    std::unique_ptr<GpuGraph> graph;   // of all of them; null: they run one by one
  };
  /// Memory that each run changes.
  struct Changed {
    core::Ref<detail::Storage> storage;
    bool by_launches;           // not only by host work
    std::uint32_t version = 0;  // before the latest run
  };
  class DrawScope;
  void run_step();
  void fail(const std::exception& failure);
  void bump_versions() const;
  void run_ops() const;
  void run_range(std::size_t first, std::size_t end) const;
  void run_lanes(const RecordedLanes& lanes) const;
  void run_parts() const;
  void run_gpu_graph(const Part& part) const;
  void run_observed(kernels::LaunchObserver& observer) const;
  bool fits_gpu_graphs() const;
  void cut_up();
  std::unique_ptr<GpuGraph> capture(std::size_t first, std::size_t end) const;
  void note_streams() const;
  void join_pointwise();

  std::unique_ptr<Recorded> recorded_;
  std::shared_ptr<const Arena> arena_;
  core::Ref<detail::Storage> args_;
  std::vector<Op> ops_;
  std::vector<Op> works_;  // the ops that are host work
  std::vector<std::unique_ptr<kernels::PointwiseRun>> pointwise_runs_;
  std::size_t joined_ = 0;  // launches in runs, but for the first of each
  std::vector<Changed> changed_;
  Device device_;
  bool one_device_ = true;
  bool on_own_stream_;               // whether a StreamScope was open at construction
  std::vector<Part> parts_;          // all ops, if the step fits GPU graphs
  GpuGraph* first_graph_ = nullptr;  // all belong to one stream
};

}  // namespace tandem::inline v0::graph

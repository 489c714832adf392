#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <tandem/autograd/ops.h>
#include <tandem/core/device.h>
#include <tandem/core/export.h>
#include <tandem/nn/container.h>
#include <tandem/parallel/pipeline/report.h>
#include <tandem/parallel/pipeline/schedule.h>
#include <tandem/parallel/pipeline/split.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

class ProcessGroup;

/// Options of Pipeline.
struct PipelineOptions {
  /// Parts of a batch that are in the pipeline one behind the other. Their sizes differ by at most one row; a batch of
  /// fewer rows gives fewer parts.
  std::int64_t microbatches = 4;
  Schedule schedule = Schedule::one_f_one_b;  ///< the order of the work; it does not change results
  /// Number of layers of each stage, such as split_by_time(...).layers; empty: split_by_bytes().
  std::vector<std::size_t> split = {};
  /// Over ranks: the ranks that have the same stage in other pipelines, each with its own part of the batch; null:
  /// there is one pipeline. They start with the values of their rank 0, whose buffers all get at each step, and step()
  /// gives all of them the mean of their gradients, so that together they train on all parts (data parallelism). The
  /// group must outlive the pipeline.
  ProcessGroup* average_over = nullptr;
};

namespace detail {
class PipelineEngine;
}

/// A Sequential whose layers are divided into stages, each on its own device or rank (model parallelism). step() sends
/// a batch through the stages in micro-batches, so that all stages work at the same time:
///
///     nn::Sequential model(nn::Linear(784, 512), nn::ReLU(), nn::Linear(512, 512), nn::ReLU(), nn::Linear(512, 10));
///     parallel::Pipeline pipeline(model, {"cuda:0", "cuda:1"}, {.microbatches = 8});
///     optim::Adam adam(pipeline.parameters());
///     for (const auto& batch : loader) {
///       adam.zero_grad();
///       Tensor loss = pipeline.step(batch.x, batch.y, loss_fn);
///       adam.step();
///     }
///
/// Gradients equal those of one device that adds up the same micro-batches' gradients, up to rounding; neither the
/// schedule nor threads change a bit. A BatchNorm in training mode sees one micro-batch at a time, in order. Random
/// draws (dropout) depend on the state of the generator when step() is called, on the stage and
/// on the micro-batch; neither on the schedule nor on the kind of pipeline. A parameter tied between stages stays on
/// the first of them; the others compute with a copy, and its gradients are added up. A layer may be any module with
/// one tensor in and one out, so a model of one's own is a Sequential of its parts.
///
/// Names and meaning follow torch.distributed.pipelining; Huang et al., "GPipe" (2019); Narayanan et al. (2021).
class TANDEM_API Pipeline {
 public:
  /// A pipeline in this process: moves the layers of stage s to devices[s], where the pool's threads compute them. A
  /// device may be listed again. Refers to `model`, which must outlive this object and keep its address. Throws
  /// ConfigError for a split that does not fit, DeviceError for a missing device.
  Pipeline(nn::Sequential& model, std::vector<Device> devices, const PipelineOptions& options = {});
  /// A pipeline over ranks: this rank computes stage group.rank(), whose layers move to the current device; the other
  /// layers stay where they are. A collective: all ranks pass the same model and options, otherwise ConfigError on all.
  /// Each stage starts with the values that it has on its own rank; a tied parameter with those of its first stage. The
  /// group must outlive the pipeline.
  Pipeline(nn::Sequential& model, ProcessGroup& group, const PipelineOptions& options = {});
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  /// Forward and backward pass on a batch: adds to the parameters' gradients and returns the loss, without history, on
  /// all ranks. `loss` is called on the last stage, for each micro-batch's output and rows of `y`. It returns the mean
  /// over rows, which is then weighted by the number of rows, or the sum (Reduction::sum). Over ranks a collective: all
  /// ranks pass batches of as many rows; only the first stage reads the values of `x`, and only the last those of `y`.
  /// Throws ShapeError for `x` and `y` of unequal rows, AutogradError under NoGradGuard, CaptureError for a pipeline
  /// over ranks while a step is captured, ConfigError if the model's layers or parameters have changed. An error in a
  /// stage names it; gradients are incomplete then. Over ranks it ends the groups on all of them.
  Tensor step(const Tensor& x, const Tensor& y,
              const std::function<Tensor(const Tensor& output, const Tensor& y)>& loss,
              Reduction reduction = Reduction::mean);
  /// The model's output for the whole batch at once. In one process the result is on the last device and has a history.
  /// Over ranks a collective without history, whose result all ranks get.
  Tensor operator()(const Tensor& x);

  /// The parameters for the optimiser: all, or over ranks those of this rank's stage. Optimisers over ranks that look
  /// for infinities (GradScaler, skip_nonfinite()) make or leave out a step together, so all ranks with gradients step.
  std::vector<Tensor> parameters() const;
  /// Scales the gradients of all stages so that their norm together is at most `max_norm`, and returns the norm before.
  /// Over ranks a collective. nn::utils' and optim's functions would see this rank's gradients alone.
  double clip_grad_norm_(double max_norm);
  /// Over ranks a collective that gives each rank's model the present values of all stages, for a whole state_dict() or
  /// an evaluation on one rank. Nothing needs to be done in one process.
  void gather_parameters();
  /// The number of stages.
  std::size_t stages() const noexcept;
  /// The number of layers of each stage.
  const std::vector<std::size_t>& split() const noexcept;
  /// Where the time went so far. Over ranks a collective.
  PipelineReport report();

 private:
  void start_counting();
  void check_unchanged();
  void note_facts(std::int64_t rows);

  std::unique_ptr<detail::PipelineEngine> engine_;
  std::uint64_t structure_version_;
  PipelineReport steps_;  // without stages
  bool is_warm_ = false;  // the first step, which is slower than the others, is no longer counted
};

}  // namespace tandem::inline v0::parallel

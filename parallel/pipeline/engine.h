#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/core/function_ref.h>
#include <tandem/parallel/first_steps.h>
#include <tandem/parallel/pipeline/pipeline.h>
#include <tandem/parallel/pipeline/stage.h>

// Internal: what runs the stages of a Pipeline: device_pipeline.cpp in one process, rank_pipeline.cpp over ranks.

namespace tandem::inline v0::parallel::detail {

/// A parameter that layers of several stages have.
struct TiedParameter {
  Tensor parameter;
  std::vector<std::size_t> stages;  // in order
};

/// The stages of a pipeline and the way in which they hand over.
class PipelineEngine {
 public:
  PipelineEngine(nn::Sequential& model, std::size_t stages, const PipelineOptions& options);
  virtual ~PipelineEngine() = default;
  PipelineEngine(const PipelineEngine&) = delete;
  PipelineEngine& operator=(const PipelineEngine&) = delete;

  /// Computes all micro-batches and returns the loss.
  virtual Tensor run(const PipelineStep& step) = 0;
  virtual Tensor forward(const Tensor& x) = 0;
  virtual std::vector<Tensor> parameters() const = 0;
  /// The sum of the squares of all gradients, over all stages.
  virtual double squared_norm() = 0;
  virtual void gather_parameters() {}
  /// The times of all stages since forget_times(). Over ranks a collective.
  virtual std::vector<StageTimes> times() = 0;
  virtual void forget_times() = 0;
  /// Whether all stages are of this rank.
  virtual bool is_here() const noexcept = 0;
  /// At the end of a step. Over ranks a collective.
  void after_step() {
    if (first_steps_) {
      first_steps_->after_pass();
    }
  }

  const PipelineOptions& options() const noexcept { return options_; }
  /// Whether the model has the layers and parameters that it had.
  bool is_unchanged() const;

 protected:
  /// Has stages let go of the copies with which they compute (Stage::bind), at the end of a pass.
  class Bound {
   public:
    explicit Bound(const std::vector<std::unique_ptr<Stage>>& stages) : stages_(stages) {}
    ~Bound() {
      for (const std::unique_ptr<Stage>& stage : stages_) {
        stage->unbind();
      }
    }
    Bound(const Bound&) = delete;
    Bound& operator=(const Bound&) = delete;

   private:
    const std::vector<std::unique_ptr<Stage>>& stages_;
  };

  /// The stages with their layers, each for its device. `where` names the place of a stage.
  std::vector<std::unique_ptr<Stage>> make_stages(const std::vector<Device>& devices,
                                                  core::FunctionRef<std::string(std::size_t stage)> where) const;
  /// The parameters that several of these stages have.
  static std::vector<TiedParameter> find_tied(const std::vector<std::unique_ptr<Stage>>& stages);
  std::vector<StageAction> actions(std::size_t stage, const PipelineStep& step) const {
    return actions_of(options_.schedule, stage, options_.split.size(), step.batches.size());
  }

  nn::Sequential& model_;
  std::optional<FirstSteps> first_steps_;

 private:
  PipelineOptions options_;    // with the split that is used
  std::vector<Tensor> known_;  // the model's parameters
};

std::unique_ptr<PipelineEngine> pipeline_of_devices(nn::Sequential& model, std::vector<Device> devices,
                                                    const PipelineOptions& options);
std::unique_ptr<PipelineEngine> pipeline_of_ranks(nn::Sequential& model, ProcessGroup& group,
                                                  const PipelineOptions& options);

/// The sum of the squares of the parameters' gradients, with those of ranks that have other elements of them.
double squared_norm_of(const std::vector<Tensor>& parameters);
/// Sums the micro-batches' parts of the loss in order.
Tensor sum_of(const std::vector<Tensor>& losses);

}  // namespace tandem::inline v0::parallel::detail

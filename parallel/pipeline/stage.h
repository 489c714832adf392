#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tandem/nn/container.h>
#include <tandem/parallel/pipeline/report.h>
#include <tandem/tensor/frame.h>
#include <tandem/tensor/generator.h>

// Internal: the work of one stage of a Pipeline.

namespace tandem::inline v0::parallel {

/// A part of a batch, which a stage computes at a time.
struct MicroBatch {
  Tensor x, y;
  double weight;  // of its loss in that of the batch
};

/// A step of a pipeline computes this.
struct PipelineStep {
  std::vector<MicroBatch> batches;
  const std::function<Tensor(const Tensor& output, const Tensor& y)>& loss;
};

/// The layers of one stage on its device, with the micro-batches in flight. A micro-batch's graph ends at the stage's
/// input, so each stage runs backward() alone. One thread at a time may call.
class Stage {
 public:
  /// Layers `first` to `last` - 1 are stage `number` of `stages`. Errors call the place `where`: "on cpu:1".
  Stage(const nn::Sequential& model, std::size_t first, std::size_t last, std::size_t number, std::size_t stages,
        Device device, std::string where);

  /// The blocks of `whole`'s numbers that a step may draw, in all stages together.
  static constexpr std::uint64_t kDrawn = std::uint64_t{1} << 32;
  /// Forgets all micro-batches. The stage draws numbers of its own from the present position of `whole`.
  void begin(std::size_t microbatches, Generator& whole);
  /// Forgets all micro-batches, after a failure.
  void give_up() { batches_.clear(); }
  /// Computes one micro-batch, whose input may be on another device. Returns the output without history; on the last
  /// stage, this micro-batch's part of the loss.
  Tensor forward(std::size_t microbatch, const Tensor& input, const PipelineStep& step);
  /// Adds the gradients of one micro-batch to the parameters'. `gradient` is that of the output, on any device;
  /// undefined on the last stage. Returns the gradient of the input; undefined on the first stage.
  Tensor backward(std::size_t microbatch, const Tensor& gradient);
  /// Computes the stage's layers as a part of a larger graph.
  Tensor apply(const Tensor& input);

  /// Until unbind(), the stage computes with `copy` instead of `parameter`, which other stages have, too.
  void bind(const Tensor& parameter, const Tensor& copy);
  void unbind() { frame_.reset(); }
  /// The parameters of the stage's layers, each once.
  const std::vector<Tensor>& parameters() const noexcept { return parameters_; }
  /// The buffers of the stage's layers.
  std::vector<Tensor> buffers() const;
  /// The parameters and buffers of the stage's layers.
  std::vector<Tensor> state() const;
  /// Moves the layers to the stage's device.
  void move_layers();
  /// The output of a micro-batch in flight, whose gradient backward() needs.
  const Tensor& output(std::size_t microbatch) const { return batches_[microbatch].output; }
  std::size_t number() const noexcept { return number_; }
  bool is_first() const noexcept { return number_ == 0; }
  bool is_last() const noexcept { return number_ + 1 == stages_; }
  Device device() const noexcept { return device_; }
  /// "stage 1 of 2, layers 3-4, on cpu:1".
  std::string name() const;
  /// The times since forget_times().
  const StageTimes& times() const noexcept { return times_; }
  void forget_times() { times_ = {.name = name()}; }

 private:
  struct InFlight {
    Tensor input, output;
  };
  class Scope;
  std::vector<nn::ModuleRef> layers() const;

  const nn::Sequential& model_;
  std::size_t first_, last_, number_, stages_;
  Device device_;
  std::string where_;
  std::vector<Tensor> parameters_;
  std::optional<core::Frame> frame_;    // if parameters are bound
  std::optional<Generator> generator_;  // of the present step
  std::vector<InFlight> batches_;
  StageTimes times_;
};

}  // namespace tandem::inline v0::parallel

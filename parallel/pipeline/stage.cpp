#include <tandem/parallel/pipeline/stage.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/span.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

}  // namespace

// The calling thread works for a stage.
class Stage::Scope {
 public:
  explicit Scope(Stage& stage) : device_(stage.device_) {
    if (stage.frame_) {
      frame_.emplace(*stage.frame_);
    }
  }

 private:
  core::DeviceScope device_;
  std::optional<core::FrameScope> frame_;
};

Stage::Stage(const nn::Sequential& model, std::size_t first, std::size_t last, std::size_t number, std::size_t stages,
             Device device, std::string where)
    : model_(model),
      first_(first),
      last_(last),
      number_(number),
      stages_(stages),
      device_(device),
      where_(std::move(where)) {
  for (const nn::ModuleRef& layer : layers()) {
    for (const Tensor& parameter : layer.parameters()) {
      if (std::ranges::find(parameters_, parameter.unresolved(), &Tensor::unresolved) == parameters_.end()) {
        parameters_.push_back(parameter);
      }
    }
  }
  forget_times();
}

std::vector<nn::ModuleRef> Stage::layers() const {
  const std::vector<nn::ModuleRef> all = model_.children();
  return {all.begin() + static_cast<std::ptrdiff_t>(first_), all.begin() + static_cast<std::ptrdiff_t>(last_)};
}

std::string Stage::name() const {
  const std::string range =
      last_ - first_ == 1 ? fmt::format("layer {}", first_) : fmt::format("layers {}-{}", first_, last_ - 1);
  return fmt::format("stage {} of {}, {}, {}", number_, stages_, range, where_);
}

std::vector<Tensor> Stage::buffers() const {
  std::vector<Tensor> buffers;
  for (const nn::ModuleRef& layer : layers()) {
    std::ranges::copy(layer.buffers(), std::back_inserter(buffers));
  }
  return buffers;
}

std::vector<Tensor> Stage::state() const {
  std::vector<Tensor> state = parameters_;
  std::ranges::copy(buffers(), std::back_inserter(state));
  return state;
}

void Stage::bind(const Tensor& parameter, const Tensor& copy) {
  if (!frame_) {
    frame_.emplace();
  }
  frame_->bind(parameter, copy);
}

void Stage::move_layers() {
  for (nn::ModuleRef layer : layers()) {
    layer.to(device_);
  }
}

void Stage::begin(std::size_t microbatches, Generator& whole) {
  batches_.assign(microbatches, {});
  generator_.emplace(whole.seed() + 0x9e3779b97f4a7c15U * (number_ + 1), whole);
}

Tensor Stage::forward(std::size_t microbatch, const Tensor& input, const PipelineStep& step) {
  const auto began = Clock::now();
  const SpanScope timed(Phase::forward);
  const Scope scope(*this);
  const GeneratorScope draws(*generator_);
  InFlight& batch = batches_[microbatch];
  batch.input = input.to(device_).detach();
  if (!is_first()) {
    batch.input.requires_grad_(is_floating_point(batch.input.dtype()));
  }
  batch.output = model_(batch.input, first_, last_);
  if (is_last()) {
    const MicroBatch& part = step.batches[microbatch];
    batch.output = step.loss(batch.output, part.y.to(device_));
    check<ShapeError>(batch.output.dim() == 0, "Pipeline: the loss of a micro-batch must be a scalar, got {}",
                      batch.output.shape());
    check<AutogradError>(batch.output.requires_grad(),
                         "Pipeline: the loss depends on nothing that requires a gradient; compute it from the output, "
                         "without detach() and NoGradGuard [TDM-E203]");
    if (part.weight != 1) {
      batch.output = batch.output * part.weight;
    }
  }
  times_.most_in_flight = std::max<std::size_t>(
      times_.most_in_flight,
      static_cast<std::size_t>(std::ranges::count_if(batches_, [](const InFlight& b) { return b.output.defined(); })));
  times_.forward += seconds_since(began);
  return batch.output.detach();
}

Tensor Stage::backward(std::size_t microbatch, const Tensor& gradient) {
  const auto began = Clock::now();
  const SpanScope timed(Phase::backward);
  const Scope scope(*this);
  const InFlight batch = std::exchange(batches_[microbatch], {});
  if (batch.output.requires_grad()) {
    batch.output.backward(gradient.defined() ? gradient.to(device_) : gradient);
  }
  ++times_.passes;
  times_.backward += seconds_since(began);
  if (is_first()) {
    return {};
  }
  const Tensor of_input = batch.input.grad();
  return of_input.defined() ? of_input : zeros_like(batch.input.detach());
}

Tensor Stage::apply(const Tensor& input) {
  const Scope scope(*this);
  return model_(input.to(device_), first_, last_);
}

}  // namespace tandem::inline v0::parallel

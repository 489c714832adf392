#include <tandem/parallel/distributed/distributed_data_parallel.h>

#include <algorithm>
#include <exception>
#include <utility>

#include <tandem/autograd/node.h>
#include <tandem/autograd/record.h>
#include <tandem/core/check.h>
#include <tandem/core/step_facts.h>
#include <tandem/core/thread_state.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/distributed/join_state.h>
#include <tandem/parallel/distributed/reducer.h>
#include <tandem/tensor/frame.h>
#include <tandem/tensor/recorder.h>

// The forward side: an output of the module gets a node in the graph by which the reducer hears of backward passes.

namespace tandem::inline v0::parallel {

namespace {

class OutputNode final : public autograd::Node {
 public:
  OutputNode(const std::shared_ptr<Reducer>& reducer, std::int64_t samples, const Tensor& output)
      : Node("ddp", 1), seen_(reducer), reducer_(reducer), samples_(samples), synced_(!reducer->is_local()) {
    watch_passes();
    connect({&output});
    if (output.dim() == 0) {
      loss_ = output.raw();
    }
  }
  void on_pass(const std::exception* failure) override {
    const std::shared_ptr<Reducer> reducer = seen_.lock();
    if (failure != nullptr) {
      if (reducer != nullptr) {
        reducer->refuse_pass(*failure, synced_);
      }
      return;
    }
    reducer->check_pass(*this, synced_);
    try {
      reducer->begin_pass(*this, synced_, samples_);
    } catch (const std::exception& error) {
      reducer->refuse_pass(error, synced_);
      throw;
    }
  }
  void apply(autograd::Gradients& gradients) override {
    if (synced_ && !gradients.is_partial()) {
      reducer_->look_for_nan(gradients.output(), loss_);
    }
    gradients.deliver(0, gradients.output(), false);
  }
  bool has_graph() const noexcept override { return true; }
  void apply_graph(autograd::GradientGraph& gradients) override { gradients.give(0, gradients.output()); }
  // A loss that the user keeps must not prevent the module from being wrapped again.
  void release() noexcept override { reducer_.reset(); }
  bool released() const noexcept override { return reducer_ == nullptr; }

 private:
  std::weak_ptr<Reducer> seen_;
  std::shared_ptr<Reducer> reducer_;  // until released
  detail::View loss_;                 // if the module returns one
  std::int64_t samples_;
  bool synced_;
};

// The gradient of a batch without samples is 0, and counts as much as that of any other rank.
void check_has_samples(const GroupLink& link, const std::vector<Shape>& inputs) {
  const auto is_empty = [](const Shape& shape) { return shape.ndim() > 0 && shape.numel() == 0; };
  const auto empty = std::ranges::find_if(inputs, is_empty);
  const bool all =
      std::ranges::all_of(inputs, [&](const Shape& shape) { return shape.ndim() == 0 || is_empty(shape); });
  check<ConfigError>(link.size() == 1 || empty == inputs.end() || !all,
                     "DistributedDataParallel: the batch {} of rank {} has no samples, and would make the gradients of "
                     "all other ranks count for less. Leave it out and use a Join, in which ranks may have unequal "
                     "numbers of batches",
                     *empty, link.names().rank(link.rank()));
}

void note_rows(const std::vector<Shape>& inputs) {
  const auto first = std::ranges::find_if(inputs, [](const Shape& shape) { return shape.ndim() > 0; });
  if (first != inputs.end()) {
    core::set_step_fact(Fact::rows, static_cast<double>((*first)[0]));
  }
}

}  // namespace

namespace detail {

std::shared_ptr<Reducer> make_reducer(const nn::ModuleRef& module, const DistributedOptions& options) {
  check<ConfigError>(
      options.process_group.value_or(nullptr) != nullptr || !options.process_group,
      "DistributedDataParallel: process_group is null, as for a rank that is not in a sub-group; let only "
      "its members wrap the module, or leave it out for the default group");
  return std::make_shared<Reducer>(module, options.process_group ? **options.process_group : default_group(), options);
}

std::int64_t before_forward(Reducer& reducer, core::FunctionRef<std::vector<Shape>()> inputs) {
  const core::Frame* frame = core::thread_state().frame;
  check<ConfigError>(frame == nullptr || frame->replica().count == 1,
                     "DistributedDataParallel: called within a replica of DataParallel; wrap the module that uses "
                     "DataParallel inside instead, or give each device a rank of its own");
  if (!core::thread_state().grad_enabled) {
    return kUncounted;
  }
  reducer.before_forward();
  if (JoinState* join = reducer.join(); join != nullptr) {
    const std::int64_t samples = join->samples_of(inputs());
    core::set_step_fact(Fact::rows, static_cast<double>(samples));
    return samples;
  }
  const std::vector<Shape> shapes = inputs();
  check_has_samples(reducer.link(), shapes);
  note_rows(shapes);
  return kUncounted;
}

Tensor attach(const Tensor& output, const std::shared_ptr<Reducer>& reducer, std::int64_t samples) {
  if (!output.defined() || !autograd::records({&output})) {
    return output;
  }
  Tensor result(output.raw());
  autograd::set_history(result, core::Ref<autograd::Node>(new OutputNode(reducer, samples, output)));
  return result;
}

bool begin_local_scope(Reducer& reducer) noexcept {
  const bool is_recorded = tandem::detail::step_recorder() != nullptr;
  is_recorded ? reducer.add_recorded_local_scopes(1) : reducer.add_local_scopes(1);
  return is_recorded;
}
void end_local_scope(Reducer& reducer, bool is_recorded) noexcept {
  is_recorded ? reducer.add_recorded_local_scopes(-1) : reducer.add_local_scopes(-1);
}

std::int64_t gradient_bytes(const Reducer& reducer) { return reducer.gradient_bytes(); }
std::int64_t parameter_bytes(const Reducer& reducer) { return reducer.parameter_bytes(); }
std::int64_t peak_parameter_bytes(const Reducer& reducer) { return reducer.peak_parameter_bytes(); }

ForwardPass::ForwardPass(Reducer& reducer) : parts_(reducer.parts()) {
  if (parts_ != nullptr) {
    parts_->begin(ParameterParts::Pass::forward);
  }
}

ForwardPass::~ForwardPass() {
  if (parts_ != nullptr) {
    parts_->end();
  }
}

void set_comm_hook(Reducer& reducer, CommHook hook) { reducer.set_comm_hook(std::move(hook)); }

}  // namespace detail

WholeParameters::WholeParameters(const std::shared_ptr<Reducer>& reducer) : reducer_(reducer) {
  if (reducer->parts() != nullptr) {
    reducer->parts()->begin_whole();
  }
}

WholeParameters::~WholeParameters() {
  const std::shared_ptr<Reducer> reducer = reducer_.lock();
  if (reducer != nullptr && reducer->parts() != nullptr) {
    reducer->parts()->end_whole();
  }
}

}  // namespace tandem::inline v0::parallel

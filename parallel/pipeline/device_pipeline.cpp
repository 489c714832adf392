#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/autograd/lane_stages.h>
#include <tandem/core/check.h>
#include <tandem/core/lane_walk.h>
#include <tandem/core/thread_state.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/pipeline/engine.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/recorder.h>

// A pipeline in one process. Each stage is a lane, whose tasks are the passes of its micro-batches. A pass may start
// once the stage before or behind has handed over what it needs. The pool's threads walk the lanes, so the result and
// the order in each lane depend on no timing.

namespace tandem::inline v0::parallel::detail {

namespace {

// A stage with the work of one step.
struct Lane {
  Stage& stage;
  std::vector<StageAction> actions;
  std::size_t next = 0;
  std::vector<Tensor> inputs{};     // of each micro-batch; undefined until handed over
  std::vector<Tensor> gradients{};  // of each micro-batch's output; undefined until handed over
  Tensor result{};                  // of the pass that has just run

  bool is_ready() const {
    if (next == actions.size()) {
      return false;
    }
    const auto [is_backward, m] = actions[next];
    return is_backward ? stage.is_last() || gradients[m].defined() : inputs[m].defined();
  }

  void process(const PipelineStep& step) {
    const auto [is_backward, m] = actions[next];
    const Tensor given = std::exchange((is_backward ? gradients : inputs)[m], {});
    try {
      result = is_backward ? stage.backward(m, given) : stage.forward(m, given, step);
    } catch (Error& error) {
      error.add_context(fmt::format("in {}, micro-batch {} of {}", stage.name(), m, step.batches.size()));
      throw;
    }
  }
};

class DevicePipeline final : public PipelineEngine {
 public:
  DevicePipeline(nn::Sequential& model, const std::vector<Device>& devices, const PipelineOptions& options)
      : PipelineEngine(model, devices.size(), options),
        stages_(make_stages(devices, [&](std::size_t s) { return fmt::format("on {}", devices[s]); })),
        tied_(find_tied(stages_)) {
    for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {  // a tied parameter ends on its first stage
      (*stage)->move_layers();
    }
    if (devices.front().type == DeviceType::cpu && !is_initialized()) {  // ranks look at their steps together
      first_steps_.emplace(nullptr);
    }
  }

  bool is_here() const noexcept override { return true; }

  Tensor run(const PipelineStep& step) override {
    const Bound bound(stages_);
    const std::vector<Copies> copies = bind_copies(false);
    std::vector<Tensor> losses;
    try {
      losses = walk(step);
    } catch (...) {
      std::ranges::for_each(stages_, [](const std::unique_ptr<Stage>& stage) { stage->give_up(); });
      throw;
    }
    for (const Copies& of : copies) {
      Tensor sum;
      for (const Tensor& copy : of.values) {
        if (const Tensor gradient = copy.grad(); gradient.defined()) {
          const Tensor here = gradient.to(of.parameter.device());
          sum = sum.defined() ? sum + here : here;
        }
      }
      if (sum.defined()) {
        of.parameter.backward(sum);
      }
    }
    return sum_of(losses);
  }

  Tensor forward(const Tensor& x) override {
    const Bound bound(stages_);
    bind_copies(core::thread_state().grad_enabled);
    Tensor output = x;
    for (const std::unique_ptr<Stage>& stage : stages_) {
      output = stage->apply(output);
    }
    return output;
  }

  std::vector<Tensor> parameters() const override { return model_.parameters(); }

  double squared_norm() override { return squared_norm_of(parameters()); }

  std::vector<StageTimes> times() override {
    std::vector<StageTimes> times;
    for (const std::unique_ptr<Stage>& stage : stages_) {
      times.push_back(stage->times());
    }
    return times;
  }

  void forget_times() override {
    for (const std::unique_ptr<Stage>& stage : stages_) {
      stage->forget_times();
    }
  }

 private:
  struct Copies {
    Tensor parameter;
    std::vector<Tensor> values;  // of each stage that has it
  };

  // Stages share no parameter, because they add up gradients at the same time.
  std::vector<Copies> bind_copies(bool with_history) {
    std::vector<Copies> copies;
    for (const TiedParameter& tied : tied_) {
      copies.push_back({.parameter = tied.parameter, .values = {}});
      for (const std::size_t s : tied.stages) {
        Tensor value = tied.parameter.view(tied.parameter.shape()).to(stages_[s]->device());
        if (!with_history) {
          value = value.detach().requires_grad_(tied.parameter.requires_grad());
        }
        stages_[s]->bind(tied.parameter, value);
        copies.back().values.push_back(value);
      }
    }
    return copies;
  }

  std::vector<Tensor> walk(const PipelineStep& step) {
    const std::size_t count = step.batches.size();
    std::vector<Lane> lanes;
    for (const std::unique_ptr<Stage>& stage : stages_) {
      stage->begin(count, current_generator());
      lanes.push_back({.stage = *stage, .actions = actions(stage->number(), step)});
      lanes.back().inputs.resize(count);
      lanes.back().gradients.resize(count);
    }
    std::ranges::transform(step.batches, lanes.front().inputs.begin(), &MicroBatch::x);
    std::vector<Tensor> losses(count);
    const auto hand_over = [&](std::size_t s) {
      Lane& lane = lanes[s];
      const auto [is_backward, m] = lane.actions[lane.next++];
      Tensor result = std::exchange(lane.result, {});
      if (!is_backward) {
        (lane.stage.is_last() ? losses : lanes[s + 1].inputs)[m] = std::move(result);
      } else if (!lane.stage.is_first()) {
        lanes[s - 1].gradients[m] = std::move(result);
      }
    };
    const auto process = [&](std::size_t s) { lanes[s].process(step); };
    if (tandem::detail::StepRecorder* recorder = tandem::detail::step_recorder()) {
      record(*recorder, count, [&](std::size_t s) {
        process(s);
        hand_over(s);
      });
      return losses;
    }
    core::LaneWalk(lanes.size())
        .run(2 * count * lanes.size(),
             {.is_ready = [&](std::size_t s) { return lanes[s].is_ready(); }, .process = process, .finish = hand_over});
    return losses;
  }

  // A replay runs stretches of the lanes' work at the same time, which need nothing of each other.
  void record(tandem::detail::StepRecorder& recorder, std::size_t microbatches,
              core::FunctionRef<void(std::size_t stage)> run_next) const {
    const std::vector<StageTask> tasks = tasks_of(options().schedule, stages_.size(), microbatches);
    std::vector<autograd::StagedTask> staged;
    for (const StageTask& task : tasks) {
      staged.push_back({.lanes = {task.stage}, .needs = {}});
      if (task.needs) {
        staged.back().needs.push_back(*task.needs);
      }
    }
    const std::vector<std::size_t> stretches = autograd::find_stages(staged, stages_.size());
    for (std::size_t stretch = 0; stretch <= *std::ranges::max_element(stretches); ++stretch) {
      recorder.run_lanes(stages_.size(),
                         [&](std::size_t s) {
                           for (std::size_t i = 0; i < tasks.size(); ++i) {
                             if (stretches[i] == stretch && tasks[i].stage == s) {
                               run_next(s);
                             }
                           }
                         },
                         {});
    }
  }

  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<TiedParameter> tied_;
};

}  // namespace

std::unique_ptr<PipelineEngine> pipeline_of_devices(nn::Sequential& model, std::vector<Device> devices,
                                                    const PipelineOptions& options) {
  check<ConfigError>(!devices.empty(), "Pipeline: no devices are given");
  check<ConfigError>(options.average_over == nullptr,
                     "Pipeline: average_over is for pipelines over ranks; one in this process has no others");
  std::ranges::for_each(devices, [](Device device) { require_available(device); });
  return std::make_unique<DevicePipeline>(model, devices, options);
}

}  // namespace tandem::inline v0::parallel::detail

#include <tandem/parallel/pipeline/pipeline.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/autograd/node.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/span.h>
#include <tandem/core/step_facts.h>
#include <tandem/core/thread_state.h>
#include <tandem/parallel/comm/on_cpu.h>
#include <tandem/parallel/pipeline/engine.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::parallel {

namespace {

// Cuts a batch into parts whose sizes differ by at most one row, the larger ones first.
std::vector<MicroBatch> cut(const Tensor& x, const Tensor& y, std::int64_t parts, Reduction reduction) {
  check<ShapeError>(x.defined() && y.defined() && x.dim() > 0 && y.dim() > 0 && x.size(0) == y.size(0),
                    "Pipeline: x and y must have the same number of rows, got {} and {} [TDM-E502]",
                    x.defined() ? to_string(x.shape()) : "an undefined tensor",
                    y.defined() ? to_string(y.shape()) : "an undefined tensor");
  const std::int64_t rows = x.size(0);
  parts = std::clamp<std::int64_t>(parts, 1, std::max<std::int64_t>(rows, 1));
  std::vector<MicroBatch> batches;
  for (std::int64_t part = 0, begin = 0; part < parts; ++part) {
    const std::int64_t count = rows / parts + (part < rows % parts ? 1 : 0);
    const bool weighs = reduction == Reduction::mean && parts > 1;
    batches.push_back({.x = x.detach().narrow(0, begin, count),
                       .y = y.detach().narrow(0, begin, count),
                       .weight = weighs ? static_cast<double>(count) / static_cast<double>(rows) : 1});
    begin += count;
  }
  return batches;
}

}  // namespace

namespace detail {

PipelineEngine::PipelineEngine(nn::Sequential& model, std::size_t stages, const PipelineOptions& options)
    : model_(model), options_(options), known_(model.parameters()) {
  check<ConfigError>(options.microbatches >= 1, "Pipeline: microbatches must be at least 1, got {}",
                     options.microbatches);
  if (options_.split.empty()) {
    options_.split = split_by_bytes(model, stages).layers;
  }
  const std::vector<std::size_t>& split = options_.split;
  const std::size_t layers = std::accumulate(split.begin(), split.end(), std::size_t{0});
  check<ConfigError>(split.size() == stages && layers == model.size() && std::ranges::find(split, 0U) == split.end(),
                     "Pipeline: the split [{}] must have {} stages of at least one layer each, {} layers in all",
                     fmt::join(split, ", "), stages, model.size());
}

std::vector<std::unique_ptr<Stage>> PipelineEngine::make_stages(
    const std::vector<Device>& devices, core::FunctionRef<std::string(std::size_t stage)> where) const {
  std::vector<std::unique_ptr<Stage>> stages;
  std::size_t first = 0;
  for (std::size_t s = 0; s < devices.size(); ++s) {
    const std::size_t last = first + options_.split[s];
    stages.push_back(std::make_unique<Stage>(model_, first, last, s, devices.size(), devices[s], where(s)));
    first = last;
  }
  return stages;
}

bool PipelineEngine::is_unchanged() const {
  return std::ranges::equal(model_.parameters(), known_, {}, &Tensor::unresolved, &Tensor::unresolved) &&
         model_.size() == std::accumulate(options_.split.begin(), options_.split.end(), std::size_t{0});
}

std::vector<TiedParameter> PipelineEngine::find_tied(const std::vector<std::unique_ptr<Stage>>& stages) {
  std::vector<TiedParameter> found;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const Tensor& parameter : stages[s]->parameters()) {
      const auto tied = std::ranges::find_if(
          found, [&](const auto& t) { return t.parameter.unresolved() == parameter.unresolved(); });
      if (tied == found.end()) {
        found.push_back({parameter, {s}});
      } else {
        tied->stages.push_back(s);
      }
    }
  }
  std::erase_if(found, [](const TiedParameter& t) { return t.stages.size() == 1; });
  return found;
}

double squared_norm_of(const std::vector<Tensor>& parameters) {
  const NoGradGuard no_grad;
  std::vector<std::pair<std::shared_ptr<autograd::StepPartners>, double>> sums{{nullptr, 0.0}};
  for (const Tensor& parameter : parameters) {
    const autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
    if (const Tensor gradient = parameter.grad(); gradient.defined() && leaf != nullptr) {
      const auto dividing = leaf->partners.require(autograd::PartnerKind::tensor);
      auto sum = std::ranges::find(sums, dividing, [](const auto& each) { return each.first; });
      if (sum == sums.end()) {
        sum = sums.emplace(sums.end(), dividing, 0.0);
      }
      const Tensor values = gradient.to(DType::f64);
      sum->second += (values * values).sum().item();
    }
  }
  double total = 0;
  for (const auto& [dividing, sum] : sums) {
    const Tensor of_ranks = full({1}, sum, on_cpu(DType::f64));
    if (dividing != nullptr) {
      dividing->total(of_ranks.raw(), autograd::StepPartners::Total::sum);
    }
    total += of_ranks.item();
  }
  return total;
}

Tensor sum_of(const std::vector<Tensor>& losses) {
  Tensor sum = losses.front();
  for (std::size_t m = 1; m < losses.size(); ++m) {
    sum = sum + losses[m];
  }
  return sum;
}

}  // namespace detail

Pipeline::Pipeline(nn::Sequential& model, std::vector<Device> devices, const PipelineOptions& options)
    : engine_(detail::pipeline_of_devices(model, std::move(devices), options)),
      structure_version_(nn::detail::structure_version()) {}
Pipeline::Pipeline(nn::Sequential& model, ProcessGroup& group, const PipelineOptions& options)
    : engine_(detail::pipeline_of_ranks(model, group, options)), structure_version_(nn::detail::structure_version()) {}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

Tensor Pipeline::step(const Tensor& x, const Tensor& y,
                      const std::function<Tensor(const Tensor& output, const Tensor& y)>& loss, Reduction reduction) {
  check<AutogradError>(
      core::thread_state().grad_enabled,
      "Pipeline: step() computes gradients, and NoGradGuard forbids them; call pipeline(x) for outputs "
      "alone");
  check<ConfigError>(reduction != Reduction::none,
                     "Pipeline: the losses of micro-batches are joined by their mean or their sum");
  const PipelineStep step{.batches = cut(x, y, engine_->options().microbatches, reduction), .loss = loss};
  check_unchanged();
  if (steps_.steps == 1 && !std::exchange(is_warm_, true)) {
    start_counting();
  }
  const auto began = std::chrono::steady_clock::now();
  const SpanScope timed(Phase::pipeline);  // what the stages do is counted as that
  Tensor result;
  try {
    result = engine_->run(step);
    current_generator().reserve(Stage::kDrawn);
  } catch (...) {
    start_counting();
    throw;
  }
  steps_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  steps_.microbatches = step.batches.size();
  ++steps_.steps;
  if (core::needs_step_facts()) {
    note_facts(x.size(0));
  }
  engine_->after_step();
  return result;
}

void Pipeline::note_facts(std::int64_t rows) {
  core::set_step_fact(Fact::rows, static_cast<double>(rows));
  if (const Device device = core::thread_state().device; device.type == DeviceType::cuda) {
    core::set_step_fact(Fact::gpu, 1 + device.index);
  }
  core::set_step_fact(Fact::stages, static_cast<double>(engine_->options().split.size()));
  core::set_step_fact(Fact::microbatches, static_cast<double>(steps_.microbatches));
  if (engine_->is_here()) {
    const PipelineReport report = this->report();
    core::set_step_fact(Fact::idle, std::clamp(report.bubble(), 0.0, 1.0));
    core::set_step_fact(Fact::imbalance, std::max(report.bubble_of_imbalance(), 0.0));
  }
}

PipelineReport Pipeline::report() {
  PipelineReport report = steps_;
  report.schedule = engine_->options().schedule;
  report.stages = engine_->times();
  return report;
}

void Pipeline::start_counting() {
  engine_->forget_times();
  steps_ = {};
}

void Pipeline::check_unchanged() {
  if (const std::uint64_t version = nn::detail::structure_version(); version != structure_version_) {
    check<ConfigError>(engine_->is_unchanged(),
                       "Pipeline: layers or parameters of its model were added or replaced since it was made; make the "
                       "pipeline when the model is complete");
    structure_version_ = version;
  }
}

Tensor Pipeline::operator()(const Tensor& x) {
  check_unchanged();
  return engine_->forward(x);
}

double Pipeline::clip_grad_norm_(double max_norm) {
  const double norm = std::sqrt(engine_->squared_norm());
  if (const double scale = max_norm / (norm + 1e-6); !(scale >= 1)) {
    const NoGradGuard no_grad;
    for (const Tensor& parameter : engine_->parameters()) {
      if (Tensor gradient = parameter.grad(); gradient.defined()) {
        gradient *= scale;
      }
    }
  }
  return norm;
}

std::vector<Tensor> Pipeline::parameters() const { return engine_->parameters(); }
void Pipeline::gather_parameters() { engine_->gather_parameters(); }
std::size_t Pipeline::stages() const noexcept { return split().size(); }
const std::vector<std::size_t>& Pipeline::split() const noexcept { return engine_->options().split; }

}  // namespace tandem::inline v0::parallel

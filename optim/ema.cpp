#include <tandem/optim/ema.h>

#include <unordered_set>

#include <fmt/format.h>

#include <tandem/autograd/parameter.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/thread_state.h>
#include <tandem/core/warning.h>
#include <tandem/kernels/optimizer.h>
#include <tandem/optim/state_reader.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::optim {

namespace {

// A dense copy that shares its memory with no other tensor.
Tensor copy_of(const Tensor& tensor) { return tensor.detach().clone(); }

}  // namespace

EMA::EMA(const std::vector<Tensor>& parameters, const EMAOptions& options)
    : watched_(std::make_shared<detail::Watched>()), parameters_(parameters), decay_(options.decay) {
  check<ConfigError>(decay_ >= 0 && decay_ <= 1, "EMA: decay must be in [0, 1], got {}", decay_);
  check<ConfigError>(!parameters.empty(),
                     "EMA: the list of parameters is empty (did the model register its layers?) [TDM-E401]");
  std::unordered_set<const void*> seen;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    check<ConfigError>(parameters[i].defined(), "EMA: parameter {} is undefined", i);
    check<ConfigError>(is_floating_point(parameters[i].dtype()),
                       "EMA: parameter {} is {}; only floating point can be "
                       "averaged",
                       i, parameters[i].dtype());
    const std::string name = autograd::parameter_name(parameters[i]);
    check<ConfigError>(seen.insert(parameters[i].unresolved()).second, "EMA: parameter {}{} appears twice [TDM-E403]",
                       i, name.empty() ? name : fmt::format(" '{}'", name));
    const core::MemoryUseScope counted(core::MemoryUse::optimizer);
    averages_.push_back(copy_of(parameters[i]));
  }
}

void EMA::update() {
  check<ConfigError>(!applied_, "EMA: update() within a Scope: the parameters are the averages there");
  watched_->watch();
  add_to_averages();
  detail::host_work("EMA::update", [this] { ++num_updates_; });
}

void EMA::add_to_averages() {
  const NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i];
    Tensor& average = averages_[i];
    {
      const core::MemoryUseScope counted(core::MemoryUse::optimizer);
      average = average.to(parameter.dtype()).to(parameter.device());
    }
    if (num_updates_ == 0) {
      average.copy_(parameter);
      continue;
    }
    const detail::View values = detail::contiguous(parameter.raw(), average.raw().memory_format());
    kernels::launch(kernels::context_for(parameter.device()), kernels::MovingAverage{.dtype = parameter.dtype(),
                                                                                     .count = parameter.numel(),
                                                                                     .average = average.raw().data(),
                                                                                     .values = values.data(),
                                                                                     .decay = decay_});
    average.raw().storage->bump_version();
  }
}

StateDict EMA::state_dict() const {
  StateDict state;
  state.set("n_averaged", tensor(num_updates_));
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    state.set(fmt::format("average.{}", i), copy_of(averages_[i]));
  }
  return state;
}

void EMA::load_state_dict(const StateDict& state) {
  StateReader reader(state, "EMA");
  const std::int64_t num_updates = reader.integer("n_averaged");
  std::vector<Tensor> averages;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    averages.push_back(reader.tensor(fmt::format("average.{}", i), parameters_[i].shape()));
  }
  reader.finish();
  const core::MemoryUseScope counted(core::MemoryUse::optimizer);
  for (std::size_t i = 0; i < averages.size(); ++i) {
    averages_[i] = copy_of(averages[i].detach().to(parameters_[i].dtype()).to(parameters_[i].device()));
  }
  num_updates_ = num_updates;
}

EMA::Scope::Scope(EMA& ema) : ema_(ema) {
  check<ConfigError>(!ema.applied_, "EMA: the averages are in the parameters already; scopes do not nest");
  const NoGradGuard no_grad;
  for (const Tensor& parameter : ema.parameters_) {
    own_.push_back(copy_of(parameter));
  }
  for (std::size_t i = 0; i < own_.size(); ++i) {
    Tensor parameter = ema.parameters_[i];
    parameter.copy_(ema.averages_[i]);
  }
  ema.applied_ = true;
}

// Fails only where parameters cannot be written any more.
EMA::Scope::~Scope() {
  const NoGradGuard no_grad;
  ema_.applied_ = false;
  try {
    for (std::size_t i = 0; i < own_.size(); ++i) {
      Tensor parameter = ema_.parameters_[i];
      parameter.copy_(own_[i]);
    }
  } catch (const Error& error) {
    core::warn(fmt::format("EMA: the averages stay in the parameters at the end of the scope: {}", error.what()));
  }
}

}  // namespace tandem::inline v0::optim

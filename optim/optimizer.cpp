#include <tandem/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include <tandem/autograd/parameter.h>
#include <tandem/core/check.h>
#include <tandem/core/progress_page.h>
#include <tandem/core/span.h>
#include <tandem/core/step_facts.h>
#include <tandem/core/thread_state.h>
#include <tandem/kernels/grad_scale.h>
#include <tandem/kernels/optimizer.h>
#include <tandem/optim/member.h>
#include <tandem/tensor/cpu_allocator.h>
#include <tandem/tensor/cuda_allocator.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/idle_gpus.h>
#include <tandem/tensor/raw.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::optim {

void Group::check_options(const Options& options) const {
  check<ConfigError>(std::isfinite(options.lr) && options.lr >= 0,
                     "{}: the learning rate must be a number >= 0, got {} [TDM-E404]", optimizer_, options.lr);
  check<ConfigError>(!options.initial_lr || (std::isfinite(*options.initial_lr) && *options.initial_lr >= 0),
                     "{}: initial_lr must be a number >= 0, got {}", optimizer_, options.initial_lr.value_or(0));
  check<ConfigError>(std::isfinite(options.weight_decay) && options.weight_decay >= 0,
                     "{}: weight_decay must be a number >= 0, got {}", optimizer_, options.weight_decay);
  if (options.momentum == options_.momentum) {
    return;
  }
  check<ConfigError>(options_.momentum.has_value(), "{}: there is no momentum to be set", optimizer_);
  const double momentum = options.momentum.value_or(0);
  check<ConfigError>(momentum >= 0 && momentum < 1, "{}: momentum must be in [0, 1), got {}", optimizer_, momentum);
  check<ConfigError>((momentum == 0) == (*options_.momentum == 0),
                     "{}: momentum cannot change from {} to {}: choose when the optimiser is made whether there is any",
                     optimizer_, *options_.momentum, momentum);
}

void Group::set_options(const Options& options) {
  check_options(options);
  options_ = options;
}

void Group::set_lr(double lr) {
  Options options = options_;
  options.lr = lr;
  set_options(options);
}

void Group::set_weight_decay(double weight_decay) {
  Options options = options_;
  options.weight_decay = weight_decay;
  set_options(options);
}

void Group::set_momentum(double momentum) {
  Options options = options_;
  options.momentum = momentum;
  set_options(options);
}

namespace {

std::vector<Tensor> trained(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> result;
  for (const Tensor& parameter : parameters) {
    if (parameter.requires_grad()) {
      result.push_back(parameter);
    }
  }
  return result;
}

// " 'fc.weight'", or nothing for a parameter without a name.
std::string quoted_name(const Tensor& parameter) {
  const std::string name = autograd::parameter_name(parameter);
  return name.empty() ? name : fmt::format(" '{}'", name);
}

// On a CPU a large parameter is a slice of its own: the threads that will multiply by its parts then update these
// parts, which saves moving them from another core's cache. Small parameters are cheaper together.
bool is_shared_out(const Tensor& parameter) {
  const detail::View& elements = parameter.unresolved()->view;
  return elements.device().type == DeviceType::cpu && elements.numel() >= kernels::kSharedUpdate;
}

}  // namespace

Optimizer::~Optimizer() = default;

Optimizer::Optimizer(const char* name, const std::vector<ParamGroup>& groups, const Group::Options& options,
                     std::vector<BufferKind> buffers, bool master_weights)
    : watched_(std::make_shared<detail::Watched>()),
      name_(name),
      buffers_(std::move(buffers)),
      master_weights_(master_weights) {
  core::join_progress_page();
  if (master_weights) {
    buffers_.push_back({"master"});  // starts as 0; the first step takes over the parameter's value
  }
  constexpr const char* kHint = "(did the model register its layers?)";
  const bool one = groups.size() == 1;
  check<ConfigError>(!groups.empty() && !(one && groups[0].params.empty()),
                     "{}: the list of parameters is empty {} [TDM-E401]", name, kHint);
  std::unordered_map<const void*, std::size_t> group_of;
  groups_.reserve(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    check<ConfigError>(!groups[g].params.empty(), "{}: group {} has no parameters {} [TDM-E401]", name, g, kHint);
    Group& group = groups_.emplace_back(name, groups[g].params, options);
    for (std::size_t i = 0; i < groups[g].params.size(); ++i) {
      const Tensor& parameter = groups[g].params[i];
      const auto where = [&] { return one ? std::string() : fmt::format(" of group {}", g); };
      check<ConfigError>(parameter.defined(), "{}: parameter {}{} is undefined", name, i, where());
      check<ConfigError>(parameter.is_leaf(),
                         "{}: parameter {}{} is the result of an op; only leaves can be optimised, such as a module's "
                         "parameters() [TDM-E402]",
                         name, i, where());
      const auto [found, added] = group_of.emplace(parameter.unresolved(), g);
      check<ConfigError>(added || found->second != g, "{}: parameter {}{}{} appears twice [TDM-E403]", name, i, where(),
                         quoted_name(parameter));
      check<ConfigError>(added, "{}: parameter {} of group {}{} is in group {} already [TDM-E403]", name, i, g,
                         quoted_name(parameter), found->second);
      members_.push_back({parameter, parameters_.size(), &group});
      parameters_.push_back(parameter);
    }
    Group::Options own = options;
    own.lr = groups[g].lr.value_or(options.lr);
    own.weight_decay = groups[g].weight_decay.value_or(options.weight_decay);
    group.set_options(own);
  }
  ParameterStore::ensure(trained(parameters_));
}

void Optimizer::set_learning_rate(double learning_rate) {
  for (Group& group : groups_) {
    group.set_lr(learning_rate);
  }
}

void Optimizer::zero_grad() {
  for (const Member& member : members_) {
    if (autograd::Leaf* leaf = member.leaf(); leaf != nullptr) {
      leaf->set_stale();
    }
  }
}

// Step count of a member, without the `skipped` steps that the device left out since the slices were cut.
std::int64_t Optimizer::steps_of(const Member& member, std::int64_t skipped) const {
  return member.in_slice ? slices_[member.slice]->state.step - skipped : member.steps;
}

// Cuts the members that have a gradient into slices. Runs at the first step, and again only when other parameters than
// before have gradients or the module was moved. The kept state moves along.
void Optimizer::cut() {
  watched_->changed();
  take_parts();
  const std::int64_t skipped = skipped_steps();
  for (Member& member : members_) {
    member.steps = steps_of(member, skipped);
    member.in_slice = false;
  }
  forget_skipped_steps();
  ParameterStore::ensure(trained(parameters_));  // a module that was moved has left its store
  const std::vector<Tensor> sorted = sorted_by_place(parameters_);
  std::unordered_map<const void*, std::size_t> place;
  for (const Tensor& parameter : sorted) {
    place.emplace(parameter.unresolved(), place.size());
  }
  const auto place_of = [&](const Member& member) { return place.at(member.parameter.unresolved()); };
  std::sort(members_.begin(), members_.end(),
            [&](const Member& a, const Member& b) { return place_of(a) < place_of(b); });

  std::vector<std::unique_ptr<Slice>> slices;
  const auto alike = [&](std::size_t i, std::size_t j) {
    return members_[i].steps == members_[j].steps && members_[i].group == members_[j].group &&
           !is_shared_out(members_[i].parameter) && !is_shared_out(members_[j].parameter) &&
           !members_[i].is_postponed() && !members_[j].is_postponed();
  };
  for (const ParameterRun& run : gradient_runs(sorted, alike)) {
    const Member& first = members_[run.first];
    slices.push_back(std::make_unique<Slice>(
        Slice{.run = run, .state = {.step = first.steps}, .buffers = {}, .master = nullptr, .group = first.group}));
    Slice& slice = *slices.back();
    const std::size_t buffers = buffers_.size() - (master_weights_ ? 1 : 0);
    for (std::size_t buffer = 0; buffer < buffers; ++buffer) {
      slice.buffers.push_back(gather_buffer(run, buffer));
    }
    for (std::size_t i = run.first; i < run.last; ++i) {
      members_[i].in_slice = true;
      members_[i].slice = slices.size() - 1;
      if (!has_master(run.dtype)) {
        members_[i].buffers.resize(buffers);  // a wider dtype needs no master: drop one from before a conversion
      }
    }
    if (has_master(run.dtype)) {
      slice.master = gather_buffer(run, buffers);
    }
  }
  slices_ = std::move(slices);
  for (Member& member : members_) {
    member.values = member.parameter.unresolved()->view.part_data();
    member.generation = member.leaf() != nullptr ? member.leaf()->generation() : 0;
  }
}

// Builds one buffer of a new slice: members keep their previous values, and new ones get the initial value.
void* Optimizer::gather_buffer(const ParameterRun& run, std::size_t buffer) {
  const core::MemoryUseScope counted(core::MemoryUse::optimizer);
  const detail::View whole = detail::empty_view({run.numel}, kept_dtype(run.dtype), run.device);
  detail::fill(whole, 0);
  std::int64_t at = 0;
  for (std::size_t i = run.first; i < run.last; ++i) {
    Member& member = members_[i];
    const std::int64_t padded = detail::single_run(member.parameter, i).numel;
    const detail::View part = detail::narrow(whole, 0, at, padded);
    // The padding after a parameter depends on its dtype, so copy the elements only.
    const detail::View elements = detail::narrow(part, 0, 0, member.count());
    if (buffer < member.buffers.size()) {
      detail::copy(elements, detail::narrow(member.buffers[buffer], 0, 0, member.count()));
      member.buffers[buffer] = part;
    } else {
      if (buffers_[buffer].initial != 0) {
        detail::fill(elements, buffers_[buffer].initial);
      }
      member.buffers.push_back(part);
    }
    at += padded;
  }
  return whole.data();
}

bool Optimizer::has_mixed_slice() const {
  return detail::fuses_updates() && std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
           return member.is_postponed() && slices_[member.slice]->run.last - slices_[member.slice]->run.first > 1;
         });
}

void Optimizer::settle_gradients() const {
  for (const Member& member : members_) {
    if (const autograd::Leaf* leaf = member.leaf(); leaf != nullptr) {
      leaf->settle();
    }
  }
}

// Finds all that is wrong with gradients: no update may fail when others are done.
void Optimizer::prepare() {
  if (!fuses_products_ || nonfinite_.defined()) {
    settle_gradients();
  }
  bool changed = false;
  for (const Member& member : members_) {
    if (const autograd::Leaf* leaf = member.leaf(); leaf != nullptr) {
      leaf->check_usable();
    }
    changed = changed || member.changed_since_cut();
  }
  if (changed || has_mixed_slice()) {
    cut();
  }
}

void Optimizer::step() {
  const SpanScope timed(Phase::optimizer, this);
  prepare();
  const std::optional<Device> device = nonfinite_.defined() ? device_of_gradients() : std::nullopt;
  if (device) {
    if (!(*device == nonfinite_.device())) {  // the module was moved
      watched_->changed();
      skip_nonfinite();
    }
    find_inf(*device, nullptr, nonfinite_, false);
    finish_grad_scale(false);
  } else if (kernels::GradScale* record = grad_scale(); record != nullptr) {  // this step's gradients are not scaled
    kernels::launch(kernels::context_for(grad_scale_.device()),
                    kernels::StartGradScale{.scale = nullptr, .record = record});
  }
  update_all();
}

std::optional<Device> Optimizer::device_of_gradients() const {
  const bool is_one = !slices_.empty() && std::all_of(slices_.begin(), slices_.end(), [&](const auto& slice) {
    return slice->run.device == slices_.front()->run.device;
  });
  return is_one ? std::optional(slices_.front()->run.device) : std::nullopt;
}

void Optimizer::skip_nonfinite(bool on) {
  watched_->changed();
  nonfinite_ = on ? zeros({}, {.dtype = DType::f32, .device = parameters_.front().device()}) : Tensor();
}

bool Optimizer::found_nonfinite() const { return nonfinite_.defined() && nonfinite_.item<float>() != 0; }

// The product of a slice's gradients, for the time of its update.
class Optimizer::ProductScope {
 public:
  ProductScope(Slice& slice, const kernels::Matmul& product) : slice_(slice) { slice.product = &product; }
  ~ProductScope() { slice_.product = nullptr; }
  ProductScope(const ProductScope&) = delete;
  ProductScope& operator=(const ProductScope&) = delete;

 private:
  Slice& slice_;
};

void Optimizer::note_bytes() const {
  std::int64_t bytes = 0;
  for (const Tensor& parameter : parameters_) {
    bytes += parameter.numel() * static_cast<std::int64_t>(item_size(parameter.dtype()));
  }
  core::set_step_fact(Fact::parameter_bytes, static_cast<double>(bytes));
  core::set_step_fact(Fact::state_bytes, static_cast<double>(state_bytes()));
  const Device device = parameters_.front().device();
  const bool is_gpu = device.type == DeviceType::cuda;
  if (is_gpu) {
    core::set_step_fact(Fact::gpu, 1 + device.index);
  }
  core::set_step_fact(Fact::peak_bytes,
                      static_cast<double>(is_gpu ? cuda::memory_stats(device).peak : cpu_memory_stats().system_bytes));
}

void Optimizer::update_all() {
  look_for_mistakes();
  // A replay runs this again and reads the rate, momentum and weight decay that the groups have by then.
  watched_->watch();
  const kernels::GradScale* scale = grad_scale();
  detail::host_work("Optimizer::step", [this, scale] {
    const SpanScope counted(Phase::optimizer, this);  // the only scope in a replay, which runs this closure alone
    count_call();
    if (core::needs_step_facts()) {
      note_bytes();
    }
    for (const auto& slice : slices_) {
      slice->state.step += 1;
      slice->state.scale = scale != nullptr && slice->run.device == grad_scale_.device() ? scale : nullptr;
      slice->state.learning_rate = slice->group->lr();
      slice->state.momentum = slice->group->momentum().value_or(0);
      slice->state.weight_decay = slice->group->weight_decay();
      if (second_momentum_) {
        const auto step = static_cast<double>(slice->state.step);
        slice->state.first_power = std::pow(slice->state.momentum, step);
        slice->state.second_power = std::pow(*second_momentum_, step);
        slice->state.powers_step = slice->state.step;
      }
    }
    if (!slices_.empty()) {
      detail::note_step(slices_.front()->run.device);
    }
    for (const Member& member : members_) {
      if (member.in_slice) {
        member.parameter.unresolved()->view.storage->bump_version();
      }
    }
  });
  note_streams();
  const std::vector<autograd::Sharding*> all = sharings();
  std::ranges::for_each(all, &autograd::Sharding::begin_update);
  for (const auto& slice : slices_) {
    autograd::Leaf& leaf = *members_[slice->run.first].leaf();
    if (leaf.postponed() != nullptr) {
      const ProductScope product(*slice, leaf.postponed()->product);
      update(*slice);
      leaf.finish_postponed();
    } else if (slice->run.numel > 0) {  // otherwise other ranks update its parameters
      update(*slice);
    }
  }
  for (autograd::Sharding* by : all) {
    exchange_parts(*by);
  }
}

// Slices keep raw addresses. If the step runs on another stream than the memory's own, the owners must be told.
void Optimizer::note_streams() const {
  for (const Member& member : members_) {
    if (member.in_slice && (core::thread_state().stream != nullptr || member.buffers_on_own_stream())) [[unlikely]] {
      member.note_stream();
    }
  }
}

}  // namespace tandem::inline v0::optim

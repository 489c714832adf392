#include <tandem/optim/grad_scaler.h>

#include <cmath>
#include <cstddef>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/span.h>
#include <tandem/kernels/grad_scale.h>
#include <tandem/optim/member.h>
#include <tandem/optim/state_reader.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::optim {

namespace {

// The record kernels::GradScale is kept as a tensor of its fields.
constexpr std::int64_t kFields = 3;
constexpr std::int64_t kSkipped = 2;
static_assert(sizeof(kernels::GradScale) == kFields * sizeof(double));
static_assert(offsetof(kernels::GradScale, skipped) == kSkipped * sizeof(double));

void check_scale(double scale) {
  check<ConfigError>(std::isfinite(scale) && scale > 0, "GradScaler: the scale must be a number > 0, got {}", scale);
}

void check_options(const GradScalerOptions& options) {
  check_scale(options.init_scale);
  check<ConfigError>(std::isfinite(options.growth_factor) && options.growth_factor > 1,
                     "GradScaler: growth_factor must be a number > 1, got {}", options.growth_factor);
  check<ConfigError>(options.backoff_factor > 0 && options.backoff_factor < 1,
                     "GradScaler: backoff_factor must be in (0, 1), got {}", options.backoff_factor);
  check<ConfigError>(options.growth_interval >= 1, "GradScaler: growth_interval must be >= 1, got {}",
                     options.growth_interval);
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : watched_(std::make_shared<detail::Watched>()), options_(options) {
  if (options.enabled) {
    check_options(options);
  }
}

void GradScaler::make_state(Device device) {
  const NoGradGuard no_grad;
  const auto make = [&](DType dtype, double value) { return full({}, value, {.dtype = dtype, .device = device}); };
  scale_ = make(DType::f32, options_.init_scale);
  growth_tracker_ = make(DType::i32, static_cast<double>(init_growth_tracker_));
  found_inf_ = make(DType::f32, 0);
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) {
    return loss;
  }
  if (!scale_.defined()) {
    make_state(loss.device());
  }
  check<DeviceError>(scale_.device() == loss.device(),
                     "GradScaler::scale: the loss is on {}, earlier ones were on {}; a scaler works on one device",
                     loss.device(), scale_.device());
  watched_->watch();
  return loss * scale_;
}

GradScaler::Stage GradScaler::stage_of(const Optimizer& optimizer) const {
  const auto found = stages_.find(&optimizer);
  return found != stages_.end() ? found->second : Stage::ready;
}

// Returns the optimiser's stage before this call. A captured step checks the stage again at each replay and goes on
// only if it is the same.
GradScaler::Stage GradScaler::enter(const char* call, const Optimizer& optimizer, Stage to) {
  const Stage before = stage_of(optimizer);
  watched_->watch();
  detail::host_work(call, [this, call, before, to, of = &optimizer] {
    const Stage now = stage_of(*of);
    check<ConfigError>(now != Stage::stepped,
                       "{}: {} has been stepped since the last update(); call update() once per iteration, after the "
                       "steps of all optimizers",
                       call, of->name());
    check<ConfigError>(now != to, "{}: called twice for {} since the last update()", call, of->name());
    check<CaptureError>(now == before,
                        "captured step: {} was recorded {} unscale_({}), and now it is otherwise; make unscale_ a part "
                        "of the step",
                        call, before == Stage::unscaled ? "after" : "without", of->name());
    stages_[of] = to;
  });
  return before;
}

void GradScaler::check_scaled(const char* call) const {
  check<AutogradError>(scale_.defined(), "{}: there is no scaled loss; call scaler.scale(loss).backward() first", call);
}

// Prepares the optimiser for a look at its gradients. No loss was scaled on this rank where other ranks have the loss
// (a pipeline), or where a training goes on whose input has ended here, so that the others' steps are left (Join).
void GradScaler::begin(const char* call, Optimizer& optimizer) {
  optimizer.settle_gradients();
  optimizer.prepare();
  if (!scale_.defined() && (is_loaded_ || !optimizer.partners().empty())) {
    if (const std::optional<Device> device = optimizer.device_of_gradients()) {
      make_state(*device);
    }
  }
  check_scaled(call);
  optimizer.check_gradients(call, scale_.device());
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!options_.enabled) {
    return;
  }
  begin("GradScaler::unscale_", optimizer);
  enter("GradScaler::unscale_", optimizer, Stage::unscaled);
  optimizer.find_inf(scale_.device(), scale_data(), found_inf_, true);
}

void GradScaler::step(Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return;
  }
  begin("GradScaler::step", optimizer);
  const bool unscaled = enter("GradScaler::step", optimizer, Stage::stepped) == Stage::unscaled;
  if (!unscaled) {
    optimizer.find_inf(scale_.device(), scale_data(), found_inf_, false);
  }
  optimizer.finish_grad_scale(unscaled);
  const SpanScope timed(Phase::optimizer, &optimizer);  // a step that was refused above is no step
  optimizer.update_all();
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled) {
    return;
  }
  check_scaled("GradScaler::update");
  if (new_scale) {
    check_scale(*new_scale);
  }
  watched_->watch();
  detail::host_work("GradScaler::update", [this, given = new_scale.has_value()] {
    check<ConfigError>(given || !stages_.empty(),
                       "GradScaler::update: no optimizer looked at its gradients since the last update(); call "
                       "scaler.step(optimizer) first");
    stages_.clear();
  });
  if (new_scale) {
    detail::fill(scale_.raw(), *new_scale);
    detail::fill(found_inf_.raw(), 0);
  } else {
    kernels::launch(kernels::context_for(scale_.device()),
                    kernels::UpdateGradScale{
                        .scale = scale_data(),
                        .growth_tracker = static_cast<std::int32_t*>(growth_tracker_.raw().data()),
                        .found_inf = static_cast<float*>(found_inf_.raw().data()),
                        .growth = options_.growth_factor,
                        .backoff = options_.backoff_factor,
                        .interval = options_.growth_interval,
                    });
  }
  scale_.raw().storage->bump_version();
}

float* GradScaler::scale_data() const { return static_cast<float*>(scale_.raw().data()); }

double GradScaler::get_scale() const {
  if (!options_.enabled) {
    return 1;
  }
  return scale_.defined() ? scale_.item() : options_.init_scale;
}

std::int64_t GradScaler::growth_tracker() const {
  return growth_tracker_.defined() ? static_cast<std::int64_t>(growth_tracker_.item()) : init_growth_tracker_;
}

StateDict GradScaler::state_dict() const {
  const NoGradGuard no_grad;
  StateDict state;
  if (options_.enabled) {
    const auto number = [](double value) { return tensor(value, {.dtype = DType::f64}); };
    state.set("scale", number(get_scale()));
    state.set("growth_factor", number(options_.growth_factor));
    state.set("backoff_factor", number(options_.backoff_factor));
    state.set("growth_interval", tensor(options_.growth_interval));
    state.set("_growth_tracker", tensor(growth_tracker()));
  }
  return state;
}

void GradScaler::load_state_dict(const StateDict& state) {
  if (!options_.enabled) {
    return;
  }
  StateReader reader(state, "GradScaler");
  const GradScalerOptions options{.init_scale = reader.number("scale", options_.init_scale),
                                  .growth_factor = reader.number("growth_factor", options_.growth_factor),
                                  .backoff_factor = reader.number("backoff_factor", options_.backoff_factor),
                                  .growth_interval = reader.integer("growth_interval", 1)};
  const std::int64_t tracker = reader.integer("_growth_tracker");
  try {
    check_options(options);
  } catch (const ConfigError& error) {
    reader.note(error.what());
  }
  reader.finish();
  watched_->changed();  // captured steps contain the factors
  options_ = options;
  init_growth_tracker_ = tracker;
  is_loaded_ = true;
  if (scale_.defined()) {
    detail::fill(scale_.raw(), options.init_scale);
    detail::fill(growth_tracker_.raw(), static_cast<double>(tracker));
    scale_.raw().storage->bump_version();
  }
}

// ---- the optimiser's part ----

kernels::GradScale* Optimizer::grad_scale() const noexcept {
  return grad_scale_.defined() ? static_cast<kernels::GradScale*>(grad_scale_.raw().data()) : nullptr;
}

void Optimizer::check_gradients(const char* call, Device device) const {
  check<AutogradError>(!slices_.empty(),
                       "{}: no parameter of {} has a gradient; call scaler.scale(loss).backward() first", call, name_);
  for (const auto& slice : slices_) {
    check<DeviceError>(slice->run.device == device,
                       "{}: the scale is on {}, a gradient of {} on {}; a scaler works on one device", call, device,
                       name_, slice->run.device);
  }
}

// Checks the gradients of all slices.
void Optimizer::find_inf(Device device, const float* scale, const Tensor& found_inf, bool unscale) {
  const NoGradGuard no_grad;
  if (!grad_scale_.defined() || !(grad_scale_.device() == device)) {
    watched_->changed();
    grad_scale_ = zeros({kFields}, {.dtype = DType::f64, .device = device});
  }
  kernels::Context& context = kernels::context_for(device);
  kernels::GradScale* const record = grad_scale();
  kernels::launch(context, kernels::StartGradScale{.scale = scale, .record = record});
  watched_->watch();
  note_streams();
  for (const auto& slice : slices_) {
    kernels::launch(context, kernels::FindInf{.dtype = slice->run.dtype,
                                              .unscale = unscale,
                                              .count = slice->run.numel,
                                              .gradients = slice->run.gradients,
                                              .record = record,
                                              .found_inf = static_cast<float*>(found_inf.raw().data())});
  }
  agree_on_inf(found_inf);
  for (const Member& member : members_) {
    if (unscale && member.in_slice) {
      member.leaf()->raw_grad().storage->bump_version();
    }
  }
}

void Optimizer::finish_grad_scale(bool unscaled) {
  kernels::launch(kernels::context_for(grad_scale_.device()),
                  kernels::FinishGradScale{.unscaled = unscaled, .record = grad_scale()});
}

// Steps that the device skipped since the slices were cut. Waits for the device.
std::int64_t Optimizer::skipped_steps() const {
  if (!grad_scale_.defined()) {
    return 0;
  }
  const detail::View host = detail::on_host(grad_scale_.raw());
  return static_cast<std::int64_t>(static_cast<const kernels::GradScale*>(host.data())->skipped);
}

void Optimizer::forget_skipped_steps() {
  if (grad_scale_.defined()) {
    detail::fill(detail::narrow(grad_scale_.raw(), 0, kSkipped, 1), 0);
  }
}

}  // namespace tandem::inline v0::optim

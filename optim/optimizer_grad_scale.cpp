#include <cstddef>

#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/kernels/grad_scale.h>
#include <tandem/optim/member.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

// The optimiser's part of GradScaler. The record kernels::GradScale is kept as a tensor of its fields.

namespace tandem::inline v0::optim {

namespace {

constexpr std::int64_t kFields = 3;
constexpr std::int64_t kSkipped = 2;
static_assert(sizeof(kernels::GradScale) == kFields * sizeof(double));
static_assert(offsetof(kernels::GradScale, skipped) == kSkipped * sizeof(double));

}  // namespace

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
void Optimizer::find_inf(const Tensor& scale, const Tensor& found_inf, bool unscale) {
  const NoGradGuard no_grad;
  const Device device = scale.device();
  if (!grad_scale_.defined() || !(grad_scale_.device() == device)) {
    watched_->changed();
    grad_scale_ = zeros({kFields}, {.dtype = DType::f64, .device = device});
  }
  kernels::Context& context = kernels::context_for(device);
  kernels::GradScale* const record = grad_scale();
  kernels::launch(context,
                  kernels::StartGradScale{.scale = static_cast<const float*>(scale.raw().data()), .record = record});
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

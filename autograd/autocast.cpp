#include <tandem/autograd/autocast.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <tandem/autograd/record.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0 {

namespace {

bool has_16_bits(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

}  // namespace

namespace autograd {

/// The state of an enabled scope.
class Autocast {
 public:
  Autocast(DType dtype, bool caches) : dtype_(dtype), caches_(caches), recorder_(core::thread_state().recorder) {}

  DType dtype() const noexcept { return dtype_; }
  bool lowers(const Tensor& tensor) const {
    return tensor.defined() && tensor.dtype() != dtype_ &&
           (tensor.dtype() == DType::f32 || has_16_bits(tensor.dtype()));
  }
  Tensor lowered(const Tensor& tensor) const;

 private:
  struct Converted {
    // The first three say what was converted, and for whose gradient.
    detail::View parameter;
    std::uint32_t version;
    core::Ref<detail::History> leaf;
    bool has_history;
    Tensor value;

    bool is_of(const detail::TensorImpl& impl) const {
      return value.defined() && parameter.storage.get() == impl.view.storage.get() &&
             parameter.offset == impl.view.offset && version == impl.view.storage->version() &&
             leaf.get() == impl.history.get();
    }
  };

  DType dtype_;
  bool caches_;
  // A step that is being recorded uses no conversion from before, which its replays would not repeat; and no later op
  // uses one from the recording, whose memory belongs to the step.
  const detail::StepRecorder* recorder_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<const detail::TensorImpl*, Converted> converted_;
};

namespace {

// The conversion of a parameter that several ops use. They may belong to graphs with backward passes of their own, so
// it stays usable after each: it saves nothing.
class ConversionNode final : public Node {
 public:
  explicit ConversionNode(const Tensor& parameter) : Node("to", 1) { connect({&parameter}); }

  void apply(Gradients& g) override {
    const Destination to = g.destination(0);
    detail::copy(to.view, g.output(), to.accumulate);
  }
  bool has_graph() const noexcept override { return true; }
  void apply_graph(GradientGraph& g) override { g.give(0, g.output()); }
  void release() noexcept override {}
  bool released() const noexcept override { return false; }
};

Tensor convert(const Tensor& parameter, DType dtype) {
  detail::View out = detail::empty_view(parameter.shape(), dtype, parameter.device());
  detail::copy(out, parameter.raw());
  Tensor result(std::move(out));
  if (records({&parameter})) {
    set_history(result, core::Ref<Node>(new ConversionNode(parameter)));
  }
  return result;
}

}  // namespace

Tensor Autocast::lowered(const Tensor& tensor) const {
  if (!lowers(tensor)) {
    return tensor;
  }
  const bool is_parameter = tensor.requires_grad() && tensor.is_leaf();
  if (!caches_ || !is_parameter || core::thread_state().recorder != recorder_) {
    return tensor.to(dtype_);
  }
  const bool has_history = core::thread_state().grad_enabled;
  const std::lock_guard lock(mutex_);
  const detail::TensorImpl& impl = *tensor.get();
  Converted& entry = converted_[&impl];
  if (!entry.is_of(impl) || entry.has_history != has_history) {
    entry = {impl.view, impl.view.storage->version(), impl.history, has_history, convert(tensor, dtype_)};
  }
  return entry.value;
}

bool lowers_any(std::initializer_list<const Tensor*> tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const Tensor* tensor) { return core::thread_state().autocast->lowers(*tensor); });
}

Tensor lowered(const Tensor& tensor) { return core::thread_state().autocast->lowered(tensor); }

bool raises_any(std::initializer_list<const Tensor*> tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const Tensor* tensor) { return tensor->defined() && has_16_bits(tensor->dtype()); });
}

Tensor raised(const Tensor& tensor) {
  return tensor.defined() && has_16_bits(tensor.dtype()) ? tensor.to(DType::f32) : tensor;
}

}  // namespace autograd

AutocastScope::AutocastScope(DType dtype, const AutocastOptions& options) : saved_(core::thread_state().autocast) {
  check<DTypeError>(has_16_bits(dtype), "AutocastScope: expected bf16 or f16, got {}; without a scope, f32 stays f32",
                    dtype);
  if (options.enabled) {
    own_ = std::make_unique<autograd::Autocast>(dtype, options.cache_enabled);
  }
  core::thread_state().autocast = own_.get();
}

AutocastScope::~AutocastScope() { core::thread_state().autocast = saved_; }

std::optional<DType> autocast_dtype() noexcept {
  const autograd::Autocast* const autocast = core::thread_state().autocast;
  return autocast == nullptr ? std::nullopt : std::optional(autocast->dtype());
}

}  // namespace tandem::inline v0

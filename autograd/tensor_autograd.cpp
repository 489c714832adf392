#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include <tandem/autograd/pass_listener.h>
#include <tandem/autograd/record.h>
#include <tandem/core/check.h>
#include <tandem/core/span.h>
#include <tandem/tensor/raw.h>

// The autograd methods of Tensor.

namespace tandem::inline v0 {

namespace {

std::uint64_t next_hook_id() {
  static std::atomic<std::uint64_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

autograd::Node& required_history(const Tensor& tensor, const char* what) {
  auto* node = static_cast<autograd::Node*>(tensor.get()->history.get());
  check<AutogradError>(node != nullptr, "{}: this tensor does not require a gradient", what);
  return *node;
}

// The gradient with which the backward pass begins; undefined for 1, where the user gives none.
detail::View seed_of(const Tensor& tensor, const Tensor& gradient) {
  if (!gradient.defined()) {
    check<AutogradError>(
        tensor.numel() == 1,
        "backward: the tensor {} is not a scalar; reduce it (.mean(), .sum()) or pass its gradient [TDM-E201]",
        tensor.shape());
    return {};
  }
  check<ShapeError>(
      gradient.shape() == tensor.shape() && gradient.dtype() == tensor.dtype() && gradient.device() == tensor.device(),
      "backward: the gradient is {} {} on {}, the tensor {} {} on {}", gradient.shape(), gradient.dtype(),
      gradient.device(), tensor.shape(), tensor.dtype(), tensor.device());
  const detail::View& view = tensor.raw();
  detail::View seed = detail::empty_view(view.sizes, view.dtype, view.device());
  detail::copy(seed, gradient.raw());  // copied, because it may be the gradient of a leaf, which this pass changes
  return seed;
}

template <class Hook>
HookHandle remover(std::shared_ptr<autograd::HookList<Hook>> hooks, std::uint64_t id, core::Ref<autograd::Leaf> leaf) {
  return HookHandle([hooks = std::move(hooks), id, leaf = std::move(leaf)] {
    if (leaf) {
      leaf->note_change();
    }
    std::erase_if(*hooks, [id](const auto& entry) { return entry.first == id; });
  });
}

}  // namespace

namespace autograd {

void check_up_to_date(const detail::TensorImpl& impl) {
  check<AutogradError>(
      impl.history_version == impl.view.storage->version(),
      "a tensor {} was changed in place through another view, which was recorded: its gradient would be "
      "lost here. Make the view after the change, or use detach() for its values",
      impl.view.sizes);
}

void Saved::throw_changed(const char* op) const {
  const std::string who = leaf_ != nullptr && !leaf_->name.empty() ? "parameter '" + leaf_->name + "'" : "a tensor";
  fail<AutogradError>(
      "backward of '{}': {} {} that it saved was changed in place since (version {}, now {}). Call backward() before "
      "changing it, or change a copy (.clone()) [TDM-E206]",
      op, who, view_.sizes, version_, view_.storage->version());
}

}  // namespace autograd

Tensor& Tensor::requires_grad_(bool on) {
  detail::TensorImpl& impl = *get();
  if (!on) {
    check<AutogradError>(is_leaf(), "requires_grad_(false): this is the result of '{}'; use detach() to cut the graph",
                         requires_grad() ? required_history(*this, "").op() : "");
    if (autograd::Leaf* leaf = autograd::leaf_of(impl); leaf != nullptr) {
      leaf->freeze();
      impl.frozen = std::move(impl.history);
    }
    return *this;
  }
  if (impl.history) {
    return *this;
  }
  check<DTypeError>(is_floating_point(impl.view.dtype),
                    "requires_grad_: only floating point tensors have gradients, got {}", impl.view.dtype);
  if (impl.frozen) {
    static_cast<autograd::Leaf*>(impl.frozen.get())->thaw();
    impl.history = std::move(impl.frozen);
  } else {
    impl.history = core::Ref<detail::History>(new autograd::Leaf(impl));
  }
  impl.output = 0;
  return *this;
}

bool Tensor::is_leaf() const {
  const auto& history = get()->history;
  return !history || history->is_leaf();
}

Tensor Tensor::grad() const {
  const detail::TensorImpl& impl = *get();
  if (const autograd::Leaf* leaf = autograd::leaf_of(impl); leaf != nullptr) {
    return leaf->grad();
  }
  if (impl.history) {
    const auto& retained = static_cast<autograd::Node*>(impl.history.get())->output(impl.output).retained;
    check<AutogradError>(retained != nullptr,
                         "grad: this is the result of '{}', whose gradient is not kept; call retain_grad() before "
                         "backward() [TDM-E204]",
                         static_cast<autograd::Node*>(impl.history.get())->op());
    return *retained;
  }
  return {};
}

void Tensor::zero_grad() const {
  if (autograd::Leaf* leaf = autograd::leaf_of(*get()); leaf != nullptr) {
    leaf->set_stale();
  }
}

void Tensor::retain_grad() const {
  auto& node = required_history(*this, "retain_grad");
  if (!node.is_leaf() && !node.output(get()->output).retained) {
    node.output(get()->output).retained = std::make_shared<Tensor>();
  }
}

void Tensor::backward(const Tensor& gradient, bool retain_graph) const {
  const SpanScope timed(Phase::backward);
  const detail::TensorImpl& impl = *get();
  check<AutogradError>(static_cast<bool>(impl.history),
                       "backward: this tensor {} depends on nothing that requires a gradient (was it computed under "
                       "NoGradGuard, or from detached values?) [TDM-E203]",
                       impl.view.sizes);
  auto& node = static_cast<autograd::Node&>(*impl.history);
  detail::View seed;
  try {
    autograd::history_of(impl, "backward");
    seed = seed_of(*this, gradient);
  } catch (const std::exception& refusal) {
    autograd::refuse_backward(node, refusal);
    throw;
  }
  autograd::run_backward(node, impl.output, seed, retain_graph);
}

HookHandle Tensor::register_hook(std::function<Tensor(const Tensor&)> fn) const {
  auto& output = required_history(*this, "register_hook").output(get()->output);
  if (!output.hooks) {
    output.hooks = std::make_shared<autograd::HookList<autograd::TensorHook>>();
  }
  core::Ref<autograd::Leaf> leaf(autograd::leaf_of(*get()));
  if (leaf) {
    leaf->note_change();
  }
  const std::uint64_t id = next_hook_id();
  output.hooks->emplace_back(id, std::move(fn));
  return remover(output.hooks, id, std::move(leaf));
}

HookHandle Tensor::register_post_accumulate_grad_hook(std::function<void(const Tensor&)> fn) const {
  autograd::Leaf* leaf = autograd::leaf_of(*get());
  check<AutogradError>(leaf != nullptr,
                       "register_post_accumulate_grad_hook: only leaves that require a gradient accumulate one");
  leaf->note_change();
  const std::uint64_t id = next_hook_id();
  leaf->post_hooks.emplace_back(id, std::move(fn));
  return HookHandle([leaf = core::Ref<autograd::Leaf>(leaf), id] {
    leaf->note_change();
    std::erase_if(leaf->post_hooks, [id](const auto& entry) { return entry.first == id; });
  });
}

}  // namespace tandem::inline v0

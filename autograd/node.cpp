#include <tandem/autograd/node.h>

#include <algorithm>

#include <tandem/core/check.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/cpu_allocator.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::autograd {

using kernels::Accumulate;

Node::Node(const char* op, std::uint32_t num_outputs) : op_(op) {
  if (num_outputs > 1) {
    more_outputs_.resize(num_outputs - 1);
  }
}

// Destroying a long chain must not recurse. A node whose last owner is a node under destruction waits in a list until
// that destruction is finished. The edges are released one by one, because two of them may be the last owners of one
// node.
Node::~Node() {
  constinit thread_local Node* waiting = nullptr;
  constinit thread_local bool under_way = false;
  for (std::uint32_t i = 0; i < num_edges_; ++i) {
    if (Node* node = edge(i).node.release(); node != nullptr && node->drop()) {
      node->next_dead_ = waiting;
      waiting = node;
    }
  }
  if (under_way) {
    return;
  }
  under_way = true;
  while (waiting != nullptr) {
    Node* node = waiting;
    waiting = node->next_dead_;
    destroy(node);
  }
  under_way = false;
}

void* Node::operator new(std::size_t bytes) { return detail::cpu_allocate(bytes); }
void Node::operator delete(void* memory, std::size_t bytes) noexcept { detail::cpu_free(memory, bytes); }

void Node::describe_output(std::uint32_t i, const detail::View& view) {
  Output& out = output(i);
  out.sizes = view.sizes;
  out.dtype = view.dtype;
  out.device = view.device();
}

detail::View Node::gradient_memory(std::uint32_t i) {
  const Output& out = output(i);
  return detail::empty_view(out.sizes, out.dtype, out.device);
}

void Node::reserve_edges(std::size_t count) {
  num_edges_ = static_cast<std::uint32_t>(count);
  if (count > std::size(few_)) {
    many_ = std::make_unique<Edge[]>(count);
  }
}

void Node::connect_one(std::uint32_t i, const Tensor& input) {
  if (!input.defined()) {
    return;
  }
  const detail::TensorImpl& impl = *input.get();
  if (Node* source = history_of(impl, op_); source != nullptr) {
    edge(i) = Edge{core::Ref<Node>(source), impl.output, source->generation()};
    depth_ = std::max(depth_, source->depth() + 1);
  }
}

void Node::connect(std::initializer_list<const Tensor*> inputs) {
  reserve_edges(inputs.size());
  std::uint32_t i = 0;
  for (const Tensor* input : inputs) {
    connect_one(i++, *input);
  }
}

void Node::connect(const std::vector<Tensor>& inputs) {
  reserve_edges(inputs.size());
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    connect_one(i, inputs[i]);
  }
}

// ---- leaves ----

Leaf::Leaf(detail::TensorImpl& t) : Node("leaf", 1), tensor(&t) {
  set_leaf_depth();
  describe_output(0, t.view);
  t.view.storage->add_leaf();
  if (detail::step_recorder() == nullptr) {  // a step may make its own leaves
    detail::note_step_change(*t.view.storage);
  }
}

void Leaf::tensor_gone() noexcept {
  if (!frozen_) {
    tensor->view.storage->remove_leaf();
  }
  tensor = nullptr;
}

void Leaf::freeze() noexcept {
  detail::note_step_change(*tensor->view.storage);
  frozen_ = true;
  fresh_ = false;
  tensor->view.storage->remove_leaf();
}

void Leaf::thaw() noexcept {
  detail::note_step_change(*tensor->view.storage);
  frozen_ = false;
  tensor->view.storage->add_leaf();
}

void Leaf::move_elements(detail::View to) noexcept {
  detail::note_step_change(*tensor->view.storage);
  if (!frozen_) {
    tensor->view.storage->remove_leaf();
    to.storage->add_leaf();
  }
  tensor->view = std::move(to);
}

// By value, including the view: `grad` may be this leaf's own gradient, whose memory changes here.
void Leaf::set_grad(Tensor grad) {  // NOLINT(performance-unnecessary-value-param)
  if (!grad.defined()) {
    fresh_ = false;
    return;
  }
  const detail::View given = grad.raw();  // NOLINT(performance-unnecessary-copy-initialization)
  const bool touched = touched_;
  fresh_ = false;
  detail::copy(destination().view, given);
  touched_ = touched;  // set_grad() is not a contribution of a backward pass
}

void Leaf::set_home(detail::View home) {
  note_change();
  if (fresh_) {
    detail::copy(home, grad_.raw());
  }
  grad_ = Tensor();
  home_ = std::move(home);
  if (fresh_) {
    grad_ = Tensor(home_);
  }
}

void Leaf::reset() {
  note_change();
  next_generation();
  describe_output(0, tensor->view);
  grad_ = Tensor();
  home_ = detail::View();
  place = {};
  fresh_ = false;
}

Destination Leaf::destination() {
  note_use(false);
  const Output& out = output(0);
  touched_ = true;
  if (!grad_.defined()) {
    const core::MemoryUseScope counted(core::MemoryUse::gradients);
    grad_ = Tensor(home_.defined() ? home_ : detail::empty_view(out.sizes, out.dtype, out.device));
    fresh_ = true;
    return {grad_.raw(), Accumulate::no};
  }
  grad_.raw().storage->bump_version();
  const Accumulate accumulate = fresh_ ? Accumulate::yes : Accumulate::no;
  fresh_ = true;
  return {grad_.raw(), accumulate};
}

void Leaf::adopt_home() {
  note_use(false);
  if (!grad_.defined()) {
    grad_ = Tensor(home_);
  }
  fresh_ = true;
}

void Leaf::deliver(const detail::View& gradient, bool owned) {
  // If a hook has kept a handle to the gradient, this leaf must not take the memory over and accumulate into it.
  if (!grad_.defined() && !home_.defined() && owned && gradient.is_contiguous() && gradient.storage->is_unique()) {
    gradient.storage->count_as(core::MemoryUse::gradients);
    grad_ = Tensor(gradient);
    fresh_ = touched_ = true;
    return;
  }
  const Destination to = destination();
  detail::copy(to.view, gradient, to.accumulate);
}

void Leaf::complete() {
  if (!touched_) {
    return;
  }
  touched_ = false;
  if (frozen_) {
    fresh_ = false;
    return;
  }
  if (observer == nullptr || !observer->on_gradient(*this)) {
    run_post_hooks();
  }
}

void Leaf::run_post_hooks() {
  if (!post_hooks.empty() && tensor != nullptr) {
    const Tensor self{core::Ref<detail::TensorImpl>(tensor)};
    const auto hooks = post_hooks;  // a copy, because a hook may remove itself
    for (const auto& [id, hook] : hooks) {
      hook(self);
    }
  }
}

const detail::View& Output::gradient() {
  if (grad.is_one && !grad.view.defined()) {
    grad.view = detail::empty_view(sizes, dtype, device);
    detail::fill(grad.view, 1);
  }
  return grad.view;
}

// ---- the interface for closures ----

Destination Gradients::destination(std::uint32_t i) {
  Node& node = *node_.edge(i).node;
  if (node.is_leaf() && !static_cast<Leaf&>(node).has_tensor_hooks()) {
    return static_cast<Leaf&>(node).destination();
  }
  Output& out = target(i);
  GradBuffer& buffer = out.grad;
  if (!buffer.view.defined()) {
    buffer = {node.gradient_memory(node_.edge(i).output), true};
    return {buffer.view, Accumulate::no};
  }
  if (!buffer.owned) {
    detail::View copy = detail::empty_view(out.sizes, out.dtype, out.device);
    detail::copy(copy, buffer.view);
    buffer = {std::move(copy), true};
  }
  buffer.as_noted = false;
  return {buffer.view, Accumulate::yes};
}

detail::View Gradients::sum(std::uint32_t i) {
  Destination to = destination(i);
  if (to.accumulate == Accumulate::no) {
    detail::fill(to.view, 0);
  }
  return std::move(to.view);
}

void Gradients::deliver(std::uint32_t i, const detail::View& gradient, bool owned) {
  Node& node = *node_.edge(i).node;
  if (node.is_leaf() && !static_cast<Leaf&>(node).has_tensor_hooks()) {
    static_cast<Leaf&>(node).deliver(gradient, owned);
    return;
  }
  if (GradBuffer& buffer = target(i).grad; !buffer.view.defined()) {
    buffer = {gradient, owned && gradient.is_contiguous()};
    return;
  }
  const Destination to = destination(i);
  detail::copy(to.view, gradient, to.accumulate);
}

Leaf* leaf_of(const detail::TensorImpl& impl) noexcept {
  return impl.history && impl.history->is_leaf() ? static_cast<Leaf*>(impl.history.get()) : nullptr;
}

Node* history_of(const detail::TensorImpl& impl, const char* op) {
  auto* node = static_cast<Node*>(impl.history.get());
  const detail::Storage& storage = *impl.view.storage;
  const bool described = (node != nullptr && !node->is_leaf()) || (storage.tracked() && !impl.detached);
  if (described && impl.history_version != storage.version()) [[unlikely]] {
    fail<AutogradError>(
        "{}: an input {} was changed in place through another view, or without being recorded, after it was "
        "computed{}{} (version {}, now {}); its gradient would be wrong. Change a copy (.clone()) instead",
        op, impl.view.sizes, node != nullptr ? " by " : "", node != nullptr ? node->op() : "", impl.history_version,
        storage.version());
  }
  return node;
}

}  // namespace tandem::inline v0::autograd

#include <tandem/autograd/node.h>

#include <algorithm>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/thread_state.h>
#include <tandem/core/warning.h>
#include <tandem/tensor/cpu_allocator.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::autograd {

using kernels::Accumulate;

namespace {

// Each thread counts its own steps, because ranks may be threads. A program with several optimisers makes several in
// each iteration.
thread_local std::uint64_t optimizer_steps = 0;
constexpr std::uint64_t kStepsInAnIteration = 8;
constexpr std::uint32_t kOften = 3;

}  // namespace

void note_optimizer_step() noexcept { ++optimizer_steps; }

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

void Node::connect(const Edge& to) {
  reserve_edges(1);
  edge(0) = to;
  depth_ = to.node->depth() + 1;
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
  set_fresh(false);
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
    set_fresh(false);
    return;
  }
  const detail::View given = grad.raw();  // NOLINT(performance-unnecessary-copy-initialization)
  const bool touched = touched_;
  set_fresh(false);
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
  prepared_by_ = nullptr;
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
  set_fresh(false);
  prepared_by_ = nullptr;
}

bool Leaf::is_permuted() const noexcept {
  if (tensor == nullptr || home_.defined() || tensor->view.is_contiguous() || tensor->view.numel() == 0) {
    return false;
  }
  const Shape& sizes = tensor->view.sizes;
  const Shape& strides = tensor->view.strides;
  std::int64_t expected = 1;  // the next stride, from the innermost dimension on
  int left = static_cast<int>(std::count_if(sizes.begin(), sizes.end(), [](std::int64_t size) { return size != 1; }));
  for (int dim = 0; dim < sizes.ndim(); ++dim) {
    if (sizes[dim] != 1 && strides[dim] == expected) {
      expected *= sizes[dim];
      --left;
      dim = -1;  // look again from the first dimension
    }
  }
  return left == 0;
}

void Leaf::make_memory() {
  const Output& out = output(0);
  const core::MemoryUseScope counted(core::MemoryUse::gradients);
  detail::View memory = home_.defined() ? home_ : detail::empty_view(out.sizes, out.dtype, out.device);
  if (is_permuted()) {
    memory.strides = tensor->view.strides;
    memory.tag = tensor->view.tag;
  }
  grad_ = Tensor(std::move(memory));
}

Destination Leaf::destination() {
  note_use(false);
  settle();
  touched_ = true;
  prepared_by_ = nullptr;
  if (!grad_.defined()) {
    make_memory();
    fresh_ = true;
    return {grad_.raw(), Accumulate::no};
  }
  is_added_ = used_version_ == grad_version();  // else somebody has written it meanwhile: `grad().zero_()`
  grad_.raw().storage->bump_version();
  used_version_ = is_added_ ? grad_version() : used_version_;
  const Accumulate accumulate = fresh_ ? Accumulate::yes : Accumulate::no;
  fresh_ = true;
  return {grad_.raw(), accumulate};
}

void Leaf::postpone(const PostponedGradient& gradient) { postponed_ = std::make_unique<PostponedGradient>(gradient); }

void Leaf::check_usable_now() const {
  const auto described = [&] {
    return fmt::format("{} {}", name.empty() ? "a parameter" : "parameter '" + name + "'", grad_.raw().sizes);
  };
  check<AutogradError>(!is_taken_,
                       "grad: the gradient of {} went straight into the optimiser's update (fuse_update) and was not "
                       "written; ask for it between backward() and step(), or capture the step without fuse_update. "
                       "Before another backward(), also of another loss, call zero_grad()",
                       described());
  check<AutogradError>(
      postponed_ == nullptr || !postponed_->is_changed(),
      "backward: the gradient of {} was left to the optimiser's update (fuse_update), and the input of "
      "the layer or the gradient of its result was changed in place since; change a copy, or capture "
      "the step without fuse_update",
      described());
  check<AutogradError>(part.by == nullptr || !fresh_ || has_only_part_,
                       "the gradient of {} is that of rank {} alone, as after no_sync(), and {} shares out the updates "
                       "(shard), which takes the mean over the ranks; clip and step after a backward pass outside of "
                       "no_sync()",
                       described(), part.by != nullptr ? part.by->rank() : 0,
                       part.by != nullptr ? part.by->name() : "");
}

void Leaf::settle_now() const {
  check_usable_now();
  kernels::launch(kernels::context_for(grad_.device()), postponed_->product);
  postponed_.reset();
}

void Leaf::refuse_whole() const {
  fail<AutogradError>(
      "grad: rank {} has elements {} to {} of the gradient of {} {}, and no others: {} shares out the updates (shard). "
      "clip_grad_norm_(), GradScaler and optimisers work on all ranks' parts; for whole gradients leave .shard out",
      part.by->rank(), part.begin, std::min(part.end, grad_.numel()),
      name.empty() ? "a parameter" : "parameter '" + name + "'", grad_.shape(), part.by->name());
}

Tensor Leaf::own_grad() const {
  if (!has_only_part_) {
    return grad();
  }
  return grad_.detach().flatten().narrow(0, part.first_of(grad_.numel()), part.count_of(grad_.numel()));
}

detail::View Leaf::prepare(const Node& node) {
  note_use(false);
  if (fresh_ || prepared_by_ != nullptr) {
    return {};
  }
  if (grad_.defined()) {
    grad_.raw().storage->bump_version();
  } else {
    make_memory();
  }
  prepared_by_ = &node;
  return grad_.raw();
}

void Leaf::adopt_home() {
  note_use(false);
  if (!grad_.defined()) {
    grad_ = Tensor(home_);
  }
  postponed_.reset();
  is_taken_ = false;
  fresh_ = true;
}

void Leaf::deliver(const detail::View& gradient, bool owned) {
  // If a hook has kept a handle to the gradient, this leaf must not take the memory over and accumulate into it.
  const bool has_place = grad_.defined() || home_.defined() || is_permuted();
  if (!has_place && owned && gradient.is_contiguous() && gradient.storage->is_unique()) {
    gradient.storage->count_as(core::MemoryUse::gradients);
    grad_ = Tensor(gradient);
    fresh_ = touched_ = true;
    return;
  }
  const Destination to = destination();
  detail::copy(to.view, gradient, to.accumulate);
}

void Leaf::add_zero() {
  if (touched_) {
    return;
  }
  if (const Destination to = destination(); to.accumulate == Accumulate::no) {
    detail::fill(to.view, 0);
  }
}

// Gradients step after step, and the same values: a weight that nobody trains. Data would be new in each step.
void Leaf::note_reached() {
  const std::uint64_t step = optimizer_steps;
  if (step == 0 || tensor == nullptr) {
    return;
  }
  const std::uint32_t version = tensor->view.storage->version();
  if (step != reached_in_) {
    const bool goes_on = reached_in_ != 0 && step <= reached_in_ + kStepsInAnIteration && version == reached_as_;
    reached_often_ = goes_on ? reached_often_ + 1 : 1;
  }
  if (reached_often_ == kOften) {
    core::warn_once(fmt::format(
        "backward: a tensor {} gets a gradient in each step, and no optimiser has it: it is never trained. If it is a "
        "weight, register it, Parameter weight = parameter(\"weight\", ...), or hand it to the optimiser; if it is "
        "data and nobody reads its gradient, requires_grad_(false) saves that [TDM-W204]",
        tensor->view.sizes));
  }
  reached_in_ = step;
  reached_as_ = version;
}

void Leaf::complete() {
  if (!touched_) {
    return;
  }
  touched_ = false;
  if (name.empty() && !place.store && !frozen_) {
    note_reached();
  }
  if (frozen_) {
    set_fresh(false);
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

// The leaf behind input `i`, if gradients go straight into its memory, which then lies row by row. Hooks see the whole
// gradient first.
Leaf* Gradients::leaf_that_takes(std::uint32_t i) const noexcept {
  Node& node = *node_.edge(i).node;
  Leaf* leaf = node.is_leaf() ? static_cast<Leaf*>(&node) : nullptr;
  return leaf != nullptr && !leaf->has_tensor_hooks() && !leaf->is_permuted() ? leaf : nullptr;
}

Destination Gradients::destination(std::uint32_t i, MemoryFormat format) {
  const bool by_rows = format == MemoryFormat::contiguous;
  if (Leaf* leaf = leaf_that_takes(i); leaf != nullptr && by_rows) {
    return leaf->destination();
  }
  Node& node = *node_.edge(i).node;
  Output& out = target(i);
  GradBuffer& buffer = out.grad;
  if (!buffer.view.defined()) {
    buffer = {by_rows ? node.gradient_memory(node_.edge(i).output)
                      : detail::empty_view(out.sizes, out.dtype, out.device, format),
              true};
    return {buffer.view, Accumulate::no};
  }
  if (!buffer.owned || !buffer.view.is_dense(format)) {
    detail::View copy = detail::empty_view(out.sizes, out.dtype, out.device, format);
    detail::copy(copy, buffer.view);
    buffer = {std::move(copy), true};
  }
  buffer.as_noted = false;
  return {buffer.view, Accumulate::yes};
}

bool Gradients::may_postpone(std::uint32_t i) const noexcept {
  const Leaf* leaf = leaf_that_takes(i);
  return leaf != nullptr && !is_partial_ && leaf->may_postpone();
}

void Gradients::postpone(std::uint32_t i, const kernels::Matmul& product, const detail::View& a,
                         const detail::View& b) {
  Leaf& leaf = *leaf_that_takes(i);
  kernels::Matmul whole = product;
  whole.out = leaf.destination().view.data();
  leaf.postpone({whole, a, b});
}

detail::View Gradients::prepare(std::uint32_t i) {
  if (Leaf* leaf = leaf_that_takes(i)) {
    return leaf->prepare(node_);
  }
  GradBuffer& buffer = target(i).grad;
  if (buffer.view.defined() || buffer.prepared_by != nullptr) {
    return {};
  }
  buffer.prepared_by = &node_;
  return node_.edge(i).node->gradient_memory(node_.edge(i).output);
}

bool Gradients::is_prepared(std::uint32_t i) const noexcept {
  if (const Leaf* leaf = leaf_that_takes(i)) {
    return leaf->is_prepared(node_);
  }
  const GradBuffer& buffer = target(i).grad;
  return buffer.prepared_by == &node_ && !buffer.view.defined();
}

void Gradients::accept(std::uint32_t i, detail::View prepared) {
  if (Leaf* leaf = leaf_that_takes(i)) {
    leaf->destination();
  } else {
    target(i).grad = {std::move(prepared), true};
  }
}

detail::View Gradients::sum(std::uint32_t i) {
  Destination to = destination(i);
  if (to.accumulate == Accumulate::no) {
    detail::fill(to.view, 0);
  }
  return std::move(to.view);
}

void Gradients::deliver(std::uint32_t i, const detail::View& gradient, bool owned) {
  if (Leaf* leaf = leaf_that_takes(i)) {
    leaf->deliver(gradient, owned);
    return;
  }
  if (GradBuffer& buffer = target(i).grad; !buffer.view.defined()) {
    buffer = {gradient, owned && (gradient.is_contiguous() || gradient.is_channels_last())};
    return;
  }
  const Destination to = destination(i, target(i).grad.view.memory_format());
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
        "computed{}{} (version {}, now {}); its gradient would be wrong. Change a copy (.clone()) instead [TDM-E206]",
        op, impl.view.sizes, node != nullptr ? " by " : "", node != nullptr ? node->op() : "", impl.history_version,
        storage.version());
  }
  return node;
}

}  // namespace tandem::inline v0::autograd

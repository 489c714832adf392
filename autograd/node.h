#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <tandem/autograd/parameter_store.h>
#include <tandem/kernels/launch.h>
#include <tandem/tensor/recorder.h>
#include <tandem/tensor/tensor.h>

// Internal: the recorded graph. A Node is one op (or one leaf); its edges lead to the nodes that made its inputs.

namespace tandem::inline v0::autograd {

class Node;
class Leaf;
class Gradients;

/// Sees the gradients of leaves as a backward pass completes them: what hooks are, for the library itself, and without
/// their cost.
class LeafObserver {
 public:
  /// The gradient of one pass is complete and in place. True: it is not final yet, and the observer will call the
  /// leaf's run_post_hooks() when it is. May throw, which fails the pass.
  virtual bool on_gradient(Leaf& leaf) = 0;

 protected:
  ~LeafObserver() = default;
};

/// Where an input's gradient goes. Null: nobody wants it.
struct Edge {
  core::Ref<Node> node;
  std::uint32_t output = 0;
  std::uint32_t generation = 0;  // of the node, when the op ran
};

/// Where a kernel writes a gradient (always dense), and whether something is there already.
struct Destination {
  detail::View view;
  kernels::Accumulate accumulate;
};

/// A gradient while it is gathered. Not `owned`: the memory may also be someone else's gradient, so it is read only.
struct GradBuffer {
  detail::View view;
  bool owned = false;
  bool masked = false;                       // of a ReLU's result: is 0 already where that is not positive
  core::Ref<detail::Storage> column_sums{};  // of a matrix [..., columns], if who wrote it has summed them
};

/// What a layer that ends in a ReLU leaves for the product that will give it its gradient.
struct ReluBits {
  core::Ref<detail::Storage> bits{};  // kernels::Matmul::relu_bits of the result; null if there are none
  bool wants_sums = false;            // the gradient of its bias, the sums of the gradient's columns, is asked for
};

using TensorHook = std::function<Tensor(const Tensor&)>;
using LeafHook = std::function<void(const Tensor&)>;

/// Hooks of one tensor by id, in order of registration.
template <class Hook>
using HookList = std::vector<std::pair<std::uint64_t, Hook>>;

/// One result of a node.
struct Output {
  Shape sizes;
  DType dtype = DType::f32;
  Device device;
  bool of_relu = false;  // 0 where the gradient of what it was made from is 0
  ReluBits relu;
  GradBuffer grad;  // only during a backward pass
  std::shared_ptr<HookList<TensorHook>> hooks;
  std::shared_ptr<Tensor> retained;  // set by retain_grad: where a copy of the gradient goes
};

class Node : public detail::History {
 public:
  Node(const char* op, std::uint32_t num_outputs);
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory, std::size_t bytes) noexcept;

  bool is_leaf() const noexcept override { return false; }
  /// Computes and delivers the gradients of the inputs.
  virtual void apply(Gradients& gradients) = 0;
  /// Lets go of what was saved.
  virtual void release() noexcept = 0;
  virtual bool released() const noexcept = 0;
  /// Of a node that watches passes, on the thread that called backward(): a pass that may come through it begins, and
  /// no gradient is there yet, but each leaf that it may reach is known (`pass`). Or it does not begin, for this
  /// reason.
  virtual void on_pass(const std::exception* /*failure*/) {}
  /// Memory for the gradient of result `i`, dense.
  virtual detail::View gradient_memory(std::uint32_t i);

  bool watches_passes() const noexcept { return watches_passes_; }
  const char* op() const noexcept { return op_; }
  std::uint32_t depth() const noexcept { return depth_; }
  /// Grows when a leaf's elements are replaced (other memory, device or dtype): graphs from before are of no use.
  std::uint32_t generation() const noexcept { return generation_; }
  std::uint32_t num_edges() const noexcept { return num_edges_; }
  Edge& edge(std::uint32_t i) noexcept { return many_ ? many_[i] : few_[i]; }
  std::uint32_t num_outputs() const noexcept { return 1 + static_cast<std::uint32_t>(more_outputs_.size()); }
  Output& output(std::uint32_t i) noexcept { return i == 0 ? first_output_ : more_outputs_[i - 1]; }
  void describe_output(std::uint32_t i, const detail::View& view);

  /// Edges to what made `inputs`; call once. Depth is one more than the deepest input's.
  void connect(std::initializer_list<const Tensor*> inputs);
  void connect(const std::vector<Tensor>& inputs);

  // State of the one backward pass that may hold this node.
  std::atomic<const void*> pass{nullptr};
  std::atomic<std::int32_t> pending{0};  // consumers whose gradients have not arrived

 protected:
  ~Node() override;
  /// As deep as a leaf: it runs after all that lead to it.
  void set_leaf_depth() noexcept { depth_ = 0; }
  void next_generation() noexcept { ++generation_; }
  void watch_passes() noexcept { watches_passes_ = true; }

 private:
  void connect_one(std::uint32_t i, const Tensor& input);
  Edge* reserve_edges(std::size_t count);

  const char* op_;
  Node* next_dead_ = nullptr;
  std::uint32_t depth_ = 1;
  std::uint32_t num_edges_ = 0;
  std::uint32_t generation_ = 0;
  bool watches_passes_ = false;
  Edge few_[3];
  std::unique_ptr<Edge[]> many_;
  Output first_output_;
  std::vector<Output> more_outputs_;
};

/// A tensor that the user made and wants the gradient of. Lives as long as the tensor or a graph that leads to it.
class Leaf final : public Node {
 public:
  explicit Leaf(detail::TensorImpl& tensor);

  bool is_leaf() const noexcept override { return true; }
  void tensor_gone() noexcept override;
  void apply(Gradients&) override {}
  void release() noexcept override {}
  bool released() const noexcept override { return false; }

  /// The gradient, if it is there and not stale.
  Tensor grad() const {
    note_use(false);
    return fresh_ ? grad_ : Tensor();
  }
  const detail::View& raw_grad() const { return grad_.raw(); }
  bool fresh() const noexcept { return fresh_; }
  void set_stale() {
    note_use(true);
    fresh_ = false;
  }
  /// The step that is being recorded depends on whether there is a gradient, or forgets it.
  void note_use(bool forget) const {
    if (detail::StepRecorder* recorder = detail::step_recorder(); recorder != nullptr) [[unlikely]] {
      recorder->on_leaf(const_cast<Leaf&>(*this), forget);
    }
  }
  /// Its gradient moves, or its hooks change.
  void note_change() const noexcept {
    if (tensor != nullptr) {
      detail::note_step_change(*tensor->view.storage);
    }
    if (grad_.defined()) {
      detail::note_step_change(*grad_.raw().storage);
    }
  }
  /// What a captured step leaves: a gradient, or none.
  void set_fresh(bool fresh) noexcept { fresh_ = fresh; }
  void set_grad(Tensor grad);
  /// From now on the gradient lives in `home`, a dense view (a segment of a ParameterStore); a present one is copied.
  void set_home(detail::View home);
  /// Gives the tensor, which is there, other elements.
  void move_elements(detail::View to) noexcept;
  /// Forgets gradient and home, and takes over the tensor's present geometry (after a move to another device).
  void reset();
  /// The tensor no longer asks for a gradient: drops the present one. What a graph from before delivers is dropped,
  /// too.
  void freeze() noexcept;
  /// It asks again.
  void thaw() noexcept;

  /// Where the next contribution goes.
  Destination destination();
  /// Adds a finished gradient; takes it over without a copy when it is owned and there is no home.
  void deliver(const detail::View& gradient, bool owned);
  /// All contributions of this pass have arrived.
  void complete();
  /// What complete() ends with, unless the observer does.
  void run_post_hooks();
  /// The pass failed: what it left here is no gradient.
  void abandon() noexcept {
    fresh_ = fresh_ && !touched_;
    touched_ = false;
  }
  /// Hooks that may replace the gradient need this pass's part apart from what was accumulated before.
  bool has_tensor_hooks() const noexcept { return first_hooks() != nullptr && !first_hooks()->empty(); }

  /// The gradient is what its home holds now, whoever wrote that.
  void adopt_home();
  /// Its memory was written by other means than this class.
  void note_rewritten() noexcept { grad_.raw().storage->bump_version(); }
  std::uint32_t grad_version() const noexcept { return grad_.raw().storage->version(); }
  /// Its bytes are again what they were then.
  void set_grad_version(std::uint32_t version) noexcept { grad_.raw().storage->set_version(version); }

  HookList<LeafHook> post_hooks;
  LeafObserver* observer = nullptr;
  std::size_t observed_as = 0;  // the observer's number for it
  std::string name;             // full parameter name, empty for plain tensors
  detail::TensorImpl* tensor;   // null once the tensor is gone
  ParameterStore::Place place;

 private:
  const HookList<TensorHook>* first_hooks() const noexcept { return const_cast<Leaf*>(this)->output(0).hooks.get(); }

  Tensor grad_;
  detail::View home_;
  bool fresh_ = false;
  bool touched_ = false;  // got something in this pass
  bool frozen_ = false;
};

/// What an op's backward closure sees.
class Gradients {
 public:
  explicit Gradients(Node& node) noexcept : node_(node) {}

  const char* op() const noexcept { return node_.op(); }
  /// The gradient of result `i`; undefined when nothing depended on it (only possible with several results).
  const detail::View& output(std::uint32_t i = 0) const noexcept { return node_.output(i).grad.view; }
  /// Whether the gradient of input `i` is asked for.
  bool wants(std::uint32_t i) const noexcept { return static_cast<bool>(node_.edge(i).node); }
  const Shape& input_sizes(std::uint32_t i) const noexcept { return target(i).sizes; }
  DType input_dtype(std::uint32_t i) const noexcept { return target(i).dtype; }
  /// Memory for input i's gradient; must be written completely (or added to). Once per input.
  Destination destination(std::uint32_t i);
  /// The same for what is only added to, piece by piece: 0 where nothing is there yet.
  detail::View sum(std::uint32_t i);
  /// Whether the gradient of input i, a ReLU's result, may be written as 0 where that is 0: nobody looks at it but the
  /// ReLU's own backward.
  bool may_mask(std::uint32_t i) const noexcept {
    const Output& out = target(i);
    return out.of_relu && !out.hooks && !out.retained;
  }
  /// What the ReLU left for that.
  const ReluBits& relu_bits(std::uint32_t i) const noexcept { return target(i).relu; }
  /// What is now in destination(i) was written so; and the sums of its columns, if they are known.
  void set_masked(std::uint32_t i, core::Ref<detail::Storage> column_sums = {}) noexcept {
    GradBuffer& buffer = target(i).grad;
    buffer.masked = true;
    buffer.column_sums = std::move(column_sums);
  }
  /// Whether the result's gradient came like that.
  bool is_masked() const noexcept { return node_.output(0).grad.masked; }
  /// The sums that came with it, or null. Once.
  core::Ref<detail::Storage> take_column_sums() noexcept { return std::move(node_.output(0).grad.column_sums); }
  /// Hands over a gradient that exists already: the result's own, or a view of it (not owned), or a new one (owned).
  void deliver(std::uint32_t i, const detail::View& gradient, bool owned);

 private:
  Output& target(std::uint32_t i) const noexcept { return node_.edge(i).node->output(node_.edge(i).output); }
  Node& node_;
};

/// The leaf behind a tensor that requires grad; null for others.
Leaf* leaf_of(const detail::TensorImpl& impl) noexcept;
/// The node that made a tensor. Throws AutogradError when the tensor was changed since in a way its history does not
/// describe. Null when it needs no gradient.
Node* history_of(const detail::TensorImpl& impl, const char* op);

/// Runs the backward pass from `root`, whose result number `output` has gradient `gradient`.
void run_backward(Node& root, std::uint32_t output, const detail::View& gradient, bool retain_graph);

}  // namespace tandem::inline v0::autograd

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
#include <tandem/autograd/postponed.h>
#include <tandem/autograd/sharding.h>
#include <tandem/kernels/launch.h>
#include <tandem/tensor/recorder.h>
#include <tandem/tensor/tensor.h>

// Internal: the recorded graph. A Node is one op (or one leaf); its edges lead to the nodes that made its inputs.

namespace tandem::inline v0::autograd {

class Node;
class Leaf;
class Gradients;
class GradientGraph;
class SampleSquares;
class Pass;

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

/// Where a kernel writes a gradient (dense), and whether something is there already.
struct Destination {
  detail::View view;
  kernels::Accumulate accumulate;
};

/// A message from an op to the op that will compute the gradient of its result, so that both gradients take one pass.
/// Opaque here: only autograd/ops/linear.cpp defines, leaves and reads notes.
struct GradientNote;

/// A gradient while it is gathered. Not `owned`: the memory may also be someone else's gradient, so it is read only.
struct GradBuffer {
  detail::View view;
  bool owned = false;
  bool as_noted = false;              // all of the gradient was written as the output's note asks
  bool is_one = false;                // every element is 1: `view` is undefined until somebody reads it
  bool answered = false;              // the output's note holds an answer of this pass
  bool is_zero = false;               // a part of it is 0 and was not computed: all of it, if nothing else arrives
  const Node* prepared_by = nullptr;  // has the memory before its turn, see Gradients::prepare()

  /// Forgets everything. Sizes that nobody reads stay.
  void clear() noexcept {
    view.storage = nullptr;
    owned = as_noted = is_one = answered = is_zero = false;
    prepared_by = nullptr;
  }
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
  GradientNote* note = nullptr;  // static, or a member of the node
  GradBuffer grad;               // only during a backward pass
  std::shared_ptr<HookList<TensorHook>> hooks;
  std::shared_ptr<Tensor> retained;  // set by retain_grad: where a copy of the gradient goes

  bool has_gradient() const noexcept { return grad.is_one || grad.view.defined(); }
  /// The elements of the gradient, which are written now if the gradient was only known to be 1. Undefined without a
  /// gradient.
  const detail::View& gradient();
};

class Node : public detail::History {
 public:
  Node(const char* op, std::uint32_t num_outputs);
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory, std::size_t bytes) noexcept;

  bool is_leaf() const noexcept override { return false; }
  /// Computes and delivers the gradients of the inputs.
  virtual void apply(Gradients& gradients) = 0;
  /// Whether apply_graph() can compute them as tensors with a history of their own, for second derivatives.
  virtual bool has_graph() const noexcept { return false; }
  virtual void apply_graph(GradientGraph& gradients);
  /// Adds up the squares of the parameters' gradients for each sample, or returns false if the op has no rule for that.
  virtual bool add_sample_squares(SampleSquares&) { return false; }
  /// Lets go of what was saved.
  virtual void release() noexcept = 0;
  virtual bool released() const noexcept = 0;
  /// Called on nodes that watch passes, by the thread that called backward(). Without a `failure`, a pass that may
  /// reach this node begins: no gradient exists yet, but every leaf that the pass may reach is known (`pass`). With
  /// one, the pass does not begin, for that reason.
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
  /// The one input is what `edge` leads to.
  void connect(const Edge& edge);

  // State of the one backward pass that may hold this node.
  std::atomic<Pass*> pass{nullptr};
  std::atomic<std::int32_t> pending{0};  // consumers whose gradients have not arrived
  bool is_left_out = false;              // in a pass of grad(): leads to none of the inputs asked for

 protected:
  ~Node() override;
  /// As deep as a leaf: it runs after all that lead to it.
  void set_leaf_depth() noexcept { depth_ = 0; }
  /// Renames the op, because another op has joined this node.
  void set_op(const char* op) noexcept { op_ = op; }
  void next_generation() noexcept { ++generation_; }
  void watch_passes() noexcept { watches_passes_ = true; }

 private:
  void connect_one(std::uint32_t i, const Tensor& input);
  void reserve_edges(std::size_t count);

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

  /// The gradient, if it is there and not stale. Throws AutogradError if only this rank's part of it is there.
  Tensor grad() const {
    note_use(false);
    settle();
    if (has_only_part_) [[unlikely]] {
      refuse_whole();
    }
    return fresh_ ? grad_ : Tensor();
  }
  const detail::View& raw_grad() const { return grad_.raw(); }
  /// Whether the tensor's elements are dense in another order than row by row. Its gradient has the same strides then,
  /// unless it has a home.
  bool is_permuted() const noexcept;
  bool fresh() const noexcept { return fresh_; }
  void set_stale() {
    note_use(true);
    set_fresh(false);
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
  /// Tells whether a captured step has left a gradient.
  void set_fresh(bool fresh) noexcept {
    fresh_ = fresh;
    used_by_ = fresh ? used_by_ : nullptr;
    if (!fresh) {
      postponed_.reset();
      is_taken_ = false;
      has_only_part_ = false;
    }
  }
  /// From now on only `part` of the gradient counts, until the gradient is stale.
  void keep_only_part() noexcept { has_only_part_ = true; }
  bool has_only_part() const noexcept { return has_only_part_; }
  /// grad(), or the elements of `part` where only these count.
  Tensor own_grad() const;
  /// Whether an update has taken the place of the gradient, which was never written.
  bool is_taken() const noexcept { return is_taken_; }
  void set_taken(bool taken) noexcept { is_taken_ = taken; }
  /// Whether the gradient may be computed when the optimiser wants it: nobody else waits for it, or has a handle to it
  /// from before.
  bool may_postpone() const noexcept {
    return !fresh_ && place.store != nullptr && observer == nullptr && prepared_by_ == nullptr &&
           (!grad_.defined() || grad_.unresolved()->is_unique());
  }
  /// Leaves the gradient, whose memory destination() has returned, to be computed later.
  void postpone(const PostponedGradient& gradient);
  /// The gradient that is to be computed, or null.
  const PostponedGradient* postponed() const noexcept { return postponed_.get(); }
  /// An update has taken it.
  void finish_postponed() noexcept {
    postponed_.reset();
    is_taken_ = true;
  }
  /// Throws AutogradError if an update cannot use the gradient: it was taken by another one, it was postponed and an
  /// operand was changed since, or ranks share out the update and it is the gradient of this rank alone.
  void check_usable() const {
    if (postponed_ != nullptr || is_taken_ || (part.by != nullptr && fresh_ && !has_only_part_)) [[unlikely]] {
      check_usable_now();
    }
  }
  /// Computes the gradient if that was postponed. Throws like check_usable().
  void settle() const {
    if (postponed_ != nullptr || is_taken_) [[unlikely]] {
      settle_now();
    }
  }
  /// Whether this optimiser was the last one to use the gradient, and nobody has written it since.
  bool is_used_by(const void* optimizer) const noexcept {
    return used_by_ == optimizer && !is_added_ && used_version_ == grad_version();
  }
  /// Whether a pass has added to the gradient that this optimiser had used.
  bool is_added_to_use_of(const void* optimizer) const noexcept { return used_by_ == optimizer && is_added_; }
  void set_used_by(const void* optimizer) noexcept {
    used_by_ = optimizer;
    used_version_ = grad_version();
    is_added_ = false;
  }
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
  /// Gives `node` that memory before its turn. Hooks find no gradient here until then. The result is undefined if there
  /// is a gradient already, to which the contribution would be added, or if another node has the memory.
  detail::View prepare(const Node& node);
  /// Whether destination() will return the memory that prepare() gave `node`, without a gradient that is there.
  bool is_prepared(const Node& node) const noexcept { return prepared_by_ == &node && !fresh_; }
  /// Adds 0, if this pass has added nothing yet.
  void add_zero();
  /// Adds a finished gradient; takes it over without a copy when it is owned and there is no home.
  void deliver(const detail::View& gradient, bool owned);
  /// All contributions of this pass have arrived.
  void complete();
  /// Runs the post-accumulate hooks: the end of complete(), unless the observer runs them.
  void run_post_hooks();
  /// The pass failed: what it left here is no gradient.
  void abandon() noexcept {
    if (touched_) {
      set_fresh(false);
    }
    touched_ = false;
    prepared_by_ = nullptr;
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
  LeafPart part;
  LeafPartners partners;  // that step with the optimiser of this leaf

 private:
  const HookList<TensorHook>* first_hooks() const noexcept { return const_cast<Leaf*>(this)->output(0).hooks.get(); }
  void make_memory();
  void note_reached();
  void settle_now() const;
  [[noreturn]] void refuse_whole() const;
  void check_usable_now() const;

  Tensor grad_;
  detail::View home_;
  bool fresh_ = false;
  bool touched_ = false;                                  // got something in this pass
  mutable std::unique_ptr<PostponedGradient> postponed_;  // computed on request, also by const members
  bool is_taken_ = false;
  bool has_only_part_ = false;
  const void* used_by_ = nullptr;
  std::uint32_t used_version_ = 0;  // of the gradient, then or after the latest addition
  bool is_added_ = false;
  // For a tensor that no optimiser has: the step of its latest gradient, the tensor's version then, and in how many
  // steps in a row it got one with that version.
  std::uint64_t reached_in_ = 0;
  std::uint32_t reached_as_ = 0;
  std::uint32_t reached_often_ = 0;
  const Node* prepared_by_ = nullptr;
  bool frozen_ = false;
};

/// An op's backward closure sees its pass through this class.
class Gradients {
 public:
  /// `is_partial`: in a pass of grad(), where an op computes no gradients but those of its own inputs.
  explicit Gradients(Node& node, bool is_partial = false) noexcept : node_(node), is_partial_(is_partial) {}

  const char* op() const noexcept { return node_.op(); }
  bool is_partial() const noexcept { return is_partial_; }
  /// The gradient of result `i`; undefined when nothing depended on it (only possible with several results).
  const detail::View& output(std::uint32_t i = 0) const { return node_.output(i).gradient(); }
  /// True if the gradient of the result is known to be 1. Ops that need not read it then save two kernels.
  bool is_one() const noexcept { return node_.output(0).grad.is_one; }
  /// Whether the gradient of input `i` is asked for.
  bool wants(std::uint32_t i) const noexcept {
    const Node* const node = node_.edge(i).node.get();
    return node != nullptr && !node->is_left_out;
  }
  const Shape& input_sizes(std::uint32_t i) const noexcept { return target(i).sizes; }
  DType input_dtype(std::uint32_t i) const noexcept { return target(i).dtype; }
  /// The gradient of input `i` is 0, as on the flat part of a function. What lies before it is not computed either.
  void give_zero(std::uint32_t i) noexcept {
    if (wants(i)) {
      target(i).grad.is_zero = true;
    }
  }
  /// Memory of this format for input i's gradient; must be written completely (or added to). Once per input.
  Destination destination(std::uint32_t i, MemoryFormat format = MemoryFormat::contiguous);
  /// Whether postpone() may replace destination(): input `i` is a weight, and nobody but its optimiser waits for the
  /// gradient.
  bool may_postpone(std::uint32_t i) const noexcept;
  /// Leaves the gradient of input `i`, the product of `a` and `b`, to the optimiser's update.
  void postpone(std::uint32_t i, const kernels::Matmul& product, const detail::View& a, const detail::View& b);
  /// Gives the memory away before this op's turn, to another op that can compute the gradient on its way. The result is
  /// undefined if there is a gradient already, to which this one would be added, or if another op has the memory.
  detail::View prepare(std::uint32_t i);
  /// Whether this op may still accept what was written to that memory. No longer so if another op has written a
  /// gradient or a hook has intervened.
  bool is_prepared(std::uint32_t i) const noexcept;
  /// In this op's turn: makes the memory, which is still prepared, the gradient of input `i`.
  void accept(std::uint32_t i, detail::View prepared);
  /// Memory for a gradient that is only added to, piece by piece. It is 0 wherever nothing was added yet.
  detail::View sum(std::uint32_t i);
  /// The note on input i. Null if no op left one, or if hooks or retain_grad() read the gradient, which must be the
  /// plain gradient in that case.
  GradientNote* note(std::uint32_t i) const noexcept {
    const Output& out = target(i);
    return is_partial_ || out.hooks || out.retained ? nullptr : out.note;
  }
  /// Marks all of destination(i) as written the way the note asks.
  void set_as_noted(std::uint32_t i) noexcept { target(i).grad.as_noted = true; }
  /// Whether the gradient of the result was written the way the result's note asks.
  bool is_as_noted() const noexcept { return node_.output(0).grad.as_noted; }
  /// Marks that the note on input i holds an answer, and asks for that mark on the result's own note. The mark ends
  /// with the pass, even one that fails.
  void set_answered(std::uint32_t i) noexcept { target(i).grad.answered = true; }
  bool is_input_answered(std::uint32_t i) const noexcept { return target(i).grad.answered; }
  bool is_answered() const noexcept { return node_.output(0).grad.answered; }
  /// Hands over a gradient that exists already: the result's own, or a view of it (not owned), or a new one (owned).
  void deliver(std::uint32_t i, const detail::View& gradient, bool owned);

 private:
  Leaf* leaf_that_takes(std::uint32_t i) const noexcept;
  Output& target(std::uint32_t i) const noexcept { return node_.edge(i).node->output(node_.edge(i).output); }
  Node& node_;
  bool is_partial_;
};

/// An optimiser makes a step. Leaves find by this that they get gradients which no optimiser uses.
void note_optimizer_step() noexcept;

/// The leaf behind a tensor that requires grad; null for others.
Leaf* leaf_of(const detail::TensorImpl& impl) noexcept;
/// The node that made a tensor. Throws AutogradError when the tensor was changed since in a way its history does not
/// describe. Null when it needs no gradient.
Node* history_of(const detail::TensorImpl& impl, const char* op);

/// grad() asks for the gradient of a result of a node, and for where it goes.
struct GradTarget {
  Node* node;
  std::uint32_t output;
  Tensor* gradient;      // undefined unless a gradient arrives
  bool is_zero = false;  // set instead by a pass with create_graph, if only zeros arrive, which nobody computes
};
/// Computes the gradients of `targets` from `root`, whose result has the gradient 1. Leaves keep theirs as they are.
void run_gradients(Node& root, const std::vector<GradTarget>& targets, bool retain_graph);

/// Runs the backward pass from `root`, whose result number `output` has gradient `gradient`, or 1 if that is undefined.
void run_backward(Node& root, std::uint32_t output, const detail::View& gradient, bool retain_graph);

}  // namespace tandem::inline v0::autograd

#include <algorithm>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/autograd/device_lanes.h>
#include <tandem/autograd/node.h>
#include <tandem/autograd/pass_listener.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/span.h>
#include <tandem/tensor/raw.h>

// The backward pass. The calling thread runs its own graph; a graph over several devices is walked in lanes. Nodes run
// in one fixed topological order, deepest first and ties in the order of discovery. Every sum therefore has the same
// order, whatever the timing.

namespace tandem::inline v0::autograd {

/// One call of backward().
class Pass {
 public:
  /// `targets`: of grad(); null for backward().
  Pass(Node& root, bool retain_graph, const std::vector<GradTarget>* targets = nullptr)
      : root_(&root), retain_graph_(retain_graph), targets_(targets) {
    spare_lists().swap(order_, leaves_);
  }

  ~Pass() {
    for (auto at = replaced_.rbegin(); at != replaced_.rend(); ++at) {
      at->first->hooks = std::move(at->second);
    }
    for (Node* node : order_) {
      clean(*node);
    }
    for (Leaf* leaf : leaves_) {
      clean(*leaf);
      if (!finished_) {
        leaf->abandon();
      }
    }
    order_.clear();
    leaves_.clear();
    spare_lists().swap(order_, leaves_);
  }

  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  void run(std::uint32_t output, const detail::View& gradient) {
    try {
      discover();
    } catch (const std::exception& refusal) {
      if (targets_ == nullptr) {
        refuse_backward(*root_, refusal);
      }
      throw;
    }
    try {
      if (targets_ != nullptr) {
        leave_out();
        listen_to_targets();
      } else {
        begin();
      }
      root_->output(output).grad = {.view = gradient, .is_one = !gradient.defined()};
      walk();
      listeners_.end();
    } catch (const std::exception& failure) {
      listeners_.fail(failure);
      throw;
    } catch (...) {
      listeners_.fail(std::runtime_error("a hook threw what is not a std::exception"));
      throw;
    }
    finished_ = true;
  }

  void add(PassListener& listener) { listeners_.add(listener); }

 private:
  void walk() {
    if (!order_.empty() && has_one_device()) {
      for (Node* node : order_) {
        process(*node);
      }
    } else if (!order_.empty()) {
      const auto last = std::find_if(order_.begin(), order_.end(), [](const Node* node) { return node->depth() == 0; });
      if (last != order_.begin()) {
        DeviceLanes({order_.begin(), last}).run([this](Node& node) { process(node); });
      }
      // Nodes of depth 0 sum up replicas' gradients. They run after all other nodes, and may then use all threads.
      for (auto node = last; node != order_.end(); ++node) {
        process(**node);
      }
    } else {
      finish(*static_cast<Leaf*>(root_.get()));
    }
  }

  // The lists of this thread's last pass, kept to reuse their memory.
  struct Lists {
    std::vector<Node*> order;
    std::vector<Leaf*> leaves;
    void swap(std::vector<Node*>& o, std::vector<Leaf*>& l) noexcept {
      order.swap(o);
      leaves.swap(l);
    }
  };
  static Lists& spare_lists() {
    thread_local Lists lists;
    return lists;
  }

  void claim(Node& node) {
    Pass* expected = nullptr;
    check<AutogradError>(node.pass.compare_exchange_strong(expected, this),
                         "backward: '{}' is part of another backward pass that is still running (of another thread, or "
                         "around a hook)",
                         node.op());
    if (node.is_leaf()) {
      leaves_.push_back(static_cast<Leaf*>(&node));
      return;
    }
    order_.push_back(&node);
    watched_ += node.watches_passes() ? 1 : 0;
    // Checked before any gradient is touched.
    check<AutogradError>(!node.released(),
                         "backward: the graph through '{}' was freed by an earlier backward(); pass retain_graph=true "
                         "to the first one, or compute the forward pass again [TDM-E202]",
                         node.op());
  }

  // Only leaves can move to another device.
  [[noreturn]] static void throw_moved(Leaf& leaf) {
    fail<AutogradError>(
        "backward: {} {} was moved to another device or dtype after the forward pass that used it; compute the forward "
        "pass again",
        leaf.name.empty() ? "a tensor" : "parameter '" + leaf.name + "'", leaf.output(0).sizes);
  }

  void discover() {
    claim(*root_);
    for (std::size_t next = 0; next < order_.size(); ++next) {
      Node& node = *order_[next];
      for (std::uint32_t i = 0; i < node.num_edges(); ++i) {
        Node* target = node.edge(i).node.get();
        if (target == nullptr) {
          continue;
        }
        if (node.edge(i).generation != target->generation()) [[unlikely]] {
          throw_moved(static_cast<Leaf&>(*target));
        }
        if (target->pass.load(std::memory_order_relaxed) != this) {
          claim(*target);
        }
        target->pending.fetch_add(1, std::memory_order_relaxed);
      }
    }
    const auto deeper = [](const Node* a, const Node* b) { return a->depth() > b->depth(); };
    if (!std::is_sorted(order_.begin(), order_.end(), deeper)) {
      std::stable_sort(order_.begin(), order_.end(), deeper);
    }
  }

  void begin() {
    for (std::size_t next = 0; next < order_.size() && watched_ > 0; ++next) {
      if (!order_[next]->watches_passes()) {
        continue;
      }
      --watched_;
      try {
        order_[next]->on_pass(nullptr);
      } catch (const std::exception& failure) {
        for (++next; next < order_.size(); ++next) {
          if (order_[next]->watches_passes()) {
            order_[next]->on_pass(&failure);
          }
        }
        throw;
      }
    }
    listeners_.begin();
  }

  // Marks what leads to no target. The shallow nodes, to which the others lead, are the last ones.
  void leave_out() {
    for (Leaf* leaf : leaves_) {
      leaf->is_left_out = true;
    }
    for (Node* node : order_) {
      node->is_left_out = true;
    }
    for (const GradTarget& target : *targets_) {
      if (target.node->pass.load(std::memory_order_relaxed) == this) {
        target.node->is_left_out = false;
      }
    }
    for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
      (*at)->is_left_out = (*at)->is_left_out && !leads_on(**at);
    }
  }

  static bool leads_on(Node& node) {
    for (std::uint32_t i = 0; i < node.num_edges(); ++i) {
      if (const Node* target = node.edge(i).node.get(); target != nullptr && !target->is_left_out) {
        return true;
      }
    }
    return false;
  }

  // The gradients of targets are what hooks see last.
  void listen_to_targets() {
    for (const GradTarget& target : *targets_) {
      if (target.node->pass.load(std::memory_order_relaxed) != this) {
        continue;
      }
      Output& out = target.node->output(target.output);
      replaced_.emplace_back(&out, out.hooks);
      out.hooks = std::make_shared<HookList<TensorHook>>(out.hooks ? *out.hooks : HookList<TensorHook>());
      out.hooks->emplace_back(0, [gradient = target.gradient](const Tensor& value) {
        *gradient = value.clone();
        return Tensor();
      });
    }
  }

  void process(Node& node) {
    if (node.is_left_out) {
      settle_inputs(node);
      return;
    }
    bool any = false;
    bool is_zero = false;
    for (std::uint32_t i = 0; i < node.num_outputs(); ++i) {
      Output& out = node.output(i);
      write_seen_zero(out);
      if (out.has_gradient()) {
        any = true;
        apply_hooks(out);
      } else {
        is_zero = is_zero || out.grad.is_zero;
      }
    }
    if (is_zero && !any) {
      Gradients gradients(node, targets_ != nullptr);
      for (std::uint32_t i = 0; i < node.num_edges(); ++i) {
        gradients.give_zero(i);
      }
    }
    if (any && (targets_ == nullptr || leads_on(node))) {
      const SpanScope traced({.name = "backward of", .detail = node.op()});
      try {
        Gradients gradients(node, targets_ != nullptr);
        node.apply(gradients);
      } catch (Error& error) {
        // The error about a saved tensor that was changed already names this backward pass.
        if (!std::string_view(error.what()).starts_with(fmt::format("backward of '{}'", node.op()))) {
          error.add_context(fmt::format("in the backward pass of '{}'", node.op()));
        }
        throw;
      }
    }
    for (std::uint32_t i = 0; i < node.num_outputs() && (any || is_zero); ++i) {
      node.output(i).grad.clear();
    }
    if (!retain_graph_) {
      node.release();
    }
    settle_inputs(node);
  }

  // A zero that nobody computed is written for who looks at the gradient: hooks, which targets have, too.
  void write_seen_zero(Output& out) {
    if (out.grad.is_zero && !out.has_gradient() && (out.hooks || (out.retained && targets_ == nullptr))) {
      detail::View zero = detail::empty_view(out.sizes, out.dtype, out.device);
      detail::fill(zero, 0);
      out.grad.view = std::move(zero);
      out.grad.owned = true;
    }
  }

  void settle_inputs(Node& node) {
    for (std::uint32_t i = 0; i < node.num_edges(); ++i) {
      Node* target = node.edge(i).node.get();
      if (target != nullptr && target->pending.fetch_sub(1, std::memory_order_acq_rel) == 1 && target->is_leaf()) {
        finish(*static_cast<Leaf*>(target));
      }
    }
  }

  void apply_hooks(Output& out) const {
    if (out.hooks) {
      const auto hooks = *out.hooks;  // a hook may remove itself
      for (const auto& [id, hook] : hooks) {
        const Tensor replaced = hook(Tensor(out.gradient()));
        out.grad.is_one = out.grad.as_noted = false;  // a hook may change it in place
        if (replaced.defined()) {
          check<ShapeError>(
              replaced.shape() == out.sizes && replaced.dtype() == out.dtype && replaced.device() == out.device,
              "gradient hook: returned {} {} on {}, the gradient is {} {} on {}", replaced.shape(), replaced.dtype(),
              replaced.device(), out.sizes, out.dtype, out.device);
          out.grad.view = replaced.raw();
          out.grad.owned = false;
        }
      }
    }
    if (out.retained && targets_ == nullptr) {
      // Makes a copy, since the engine may continue to add into its buffers.
      const detail::View kept = detail::empty_view(out.sizes, out.dtype, out.device);
      detail::copy(kept, out.gradient());
      if (out.retained->defined()) {
        detail::copy(kept, out.retained->raw(), kernels::Accumulate::yes);
      }
      *out.retained = Tensor(kept);
    }
  }

  void finish(Leaf& leaf) {
    Output& out = leaf.output(0);
    write_seen_zero(out);
    if (targets_ != nullptr) {
      if (out.has_gradient()) {
        apply_hooks(out);
        out.grad.clear();
      }
      return;
    }
    if (out.has_gradient()) {
      apply_hooks(out);
      leaf.deliver(out.gradient(), out.grad.owned);
      out.grad.clear();
    } else if (out.grad.is_zero) {
      leaf.add_zero();
      out.grad.clear();
    }
    leaf.complete();
  }

  static void clean(Node& node) noexcept {
    for (std::uint32_t i = 0; i < node.num_outputs(); ++i) {
      node.output(i).grad.clear();
    }
    node.is_left_out = false;
    node.pending.store(0, std::memory_order_relaxed);
    node.pass.store(nullptr, std::memory_order_release);
  }

  bool has_one_device() {
    const Device first = order_.front()->output(0).device;
    return std::all_of(order_.begin(), order_.end(), [&](Node* node) {
      for (std::uint32_t i = 0; i < node->num_edges(); ++i) {
        if (const Edge& edge = node->edge(i); edge.node && !(edge.node->output(edge.output).device == first)) {
          return false;
        }
      }
      return true;
    });
  }

  core::Ref<Node> root_;
  bool retain_graph_;
  const std::vector<GradTarget>* targets_;
  std::vector<std::pair<Output*, std::shared_ptr<HookList<TensorHook>>>> replaced_;  // the hooks of targets
  bool finished_ = false;
  std::vector<Node*> order_;  // interior nodes, in the order they run
  std::vector<Leaf*> leaves_;
  std::size_t watched_ = 0;  // nodes of the order that watch passes and have not been told yet
  PassListeners listeners_;
};

void listen_to_pass(const Node& member, PassListener& listener) {
  member.pass.load(std::memory_order_relaxed)->add(listener);
}

void run_backward(Node& root, std::uint32_t output, const detail::View& gradient, bool retain_graph) {
  const NoGradGuard no_grad;
  Pass pass(root, retain_graph);
  pass.run(output, gradient);
}

void run_gradients(Node& root, const std::vector<GradTarget>& targets, bool retain_graph) {
  const NoGradGuard no_grad;
  Pass pass(root, retain_graph, &targets);
  pass.run(0, {});
}

}  // namespace tandem::inline v0::autograd

#pragma once

#include <initializer_list>
#include <optional>
#include <utility>

#include <tandem/autograd/anomaly.h>
#include <tandem/autograd/gradient_graph.h>
#include <tandem/autograd/node.h>
#include <tandem/autograd/sample_squares.h>
#include <tandem/autograd/saved.h>
#include <tandem/core/check.h>

// Internal: how an op records its history. In autograd/ops/<family>.cpp an op computes its result and then calls
// record() in the same function, with the closure that delivers its gradients.

namespace tandem::inline v0::autograd {

/// A node whose backward is a closure. The captures of the closure are the memory that the op keeps alive.
template <class Closure>
class ClosureNode final : public Node {
 public:
  ClosureNode(const char* op, Closure closure, std::uint32_t num_outputs = 1)
      : Node(op, num_outputs), closure_(std::move(closure)) {}
  void apply(Gradients& gradients) override { (*closure_)(gradients); }
  bool has_graph() const noexcept override { return kHasGraph; }
  void apply_graph(GradientGraph& gradients) override {
    if constexpr (kHasGraph) {
      (*closure_)(gradients);
    } else {
      Node::apply_graph(gradients);
    }
  }
  bool add_sample_squares(SampleSquares& samples) override {
    if constexpr (requires { Closure::kHasSamples; }) {
      (*closure_)(samples);
      return true;
    }
    return false;
  }
  void release() noexcept override { closure_.reset(); }
  bool released() const noexcept override { return !closure_.has_value(); }

 private:
  static constexpr bool kHasGraph = requires(Closure& closure, GradientGraph& gradients) { closure(gradients); };

  std::optional<Closure> closure_;
};

/// Throws AutogradError for a tensor without history whose elements were changed by a recorded op on another view.
void check_up_to_date(const detail::TensorImpl& impl);

/// Whether an op on `inputs` is recorded: grad mode is on and at least one input requires a gradient.
inline bool records(std::initializer_list<const Tensor*> inputs) {
  if (!core::thread_state().grad_enabled) {
    return false;
  }
  for (const Tensor* input : inputs) {
    if (!input->defined()) {
      continue;
    }
    const detail::TensorImpl& impl = *input->get();
    if (impl.history) {
      return true;
    }
    if (impl.view.storage->tracked() && !impl.detached) [[unlikely]] {
      check_up_to_date(impl);
    }
  }
  return false;
}

/// Makes `node` the history of `result`.
inline void set_history(Tensor& result, core::Ref<Node> node, std::uint32_t output = 0) {
  detail::TensorImpl& impl = *result.get();
  if (core::thread_state().detects_anomaly) [[unlikely]] {
    check_anomaly(node->op(), result);
  }
  node->describe_output(output, impl.view);
  impl.history = std::move(node);
  impl.output = output;
  impl.history_version = impl.view.storage->version();
}

/// Returns the result of `op` as a tensor, with history if the op is recorded. `make_closure()` is called only in that
/// case and returns the closure `void(Gradients&)`, or `void(auto&)`, which takes a GradientGraph, too. Closures
/// address inputs by their position in `inputs`.
template <class MakeClosure>
Tensor record(const char* op, detail::View out, std::initializer_list<const Tensor*> inputs,
              MakeClosure&& make_closure) {
  Tensor result(std::move(out));
  if (records(inputs)) {
    core::Ref<Node> node(new ClosureNode(op, make_closure()));
    node->connect(inputs);
    set_history(result, std::move(node));
  }
  return result;
}

}  // namespace tandem::inline v0::autograd

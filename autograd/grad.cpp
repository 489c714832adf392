#include <tandem/autograd/grad.h>

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include <tandem/autograd/gradient_graph.h>
#include <tandem/autograd/ops.h>
#include <tandem/autograd/record.h>
#include <tandem/core/check.h>
#include <tandem/core/span.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::autograd {

namespace {

// The beginning of a pass over several outputs: hands each its gradient.
core::Ref<Node> root_of(std::span<const Tensor> outputs, std::vector<Tensor> seeds) {
  core::Ref<Node> root(new ClosureNode("grad", [seeds = std::move(seeds)](Gradients& g) {
    for (std::uint32_t i = 0; i < seeds.size(); ++i) {
      if (g.wants(i)) {
        g.deliver(i, seeds[i].raw(), false);
      }
    }
  }));
  root->connect(std::vector<Tensor>(outputs.begin(), outputs.end()));
  return root;
}

std::vector<Tensor> seeds_of(std::span<const Tensor> outputs, const std::vector<Tensor>& given) {
  check<ConfigError>(given.empty() || given.size() == outputs.size(), "grad: {} outputs, and {} grad_outputs",
                     outputs.size(), given.size());
  std::vector<Tensor> seeds;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    if (given.empty() || !given[i].defined()) {
      check<AutogradError>(output.numel() == 1,
                           "grad: output {} {} is not a scalar; reduce it (.mean(), .sum()) or pass its gradient "
                           "(grad_outputs) [TDM-E201]",
                           i, output.shape());
      seeds.push_back(ones(output.shape(), {.dtype = output.dtype(), .device = output.device()}));
      continue;
    }
    const Tensor& seed = given[i];
    check<ShapeError>(
        seed.shape() == output.shape() && seed.dtype() == output.dtype() && seed.device() == output.device(),
        "grad: grad_outputs {} is {} {} on {}, the output {} {} on {}", i, seed.shape(), seed.dtype(), seed.device(),
        output.shape(), output.dtype(), output.device());
    seeds.push_back(seed);
  }
  return seeds;
}

// A pass whose gradients are tensors. Nodes run deepest first, and in the order of discovery where depths are equal.
class GraphPass {
 public:
  /// `ends_there`: no target leads to another one, so what leads to them is not looked at.
  GraphPass(std::span<const Tensor> outputs, const std::vector<Tensor>& seeds, std::vector<GradTarget>& targets,
            bool ends_there = false)
      : targets_(targets) {
    const auto is_target = [&](const Node* node) {
      return std::ranges::any_of(targets, [node](const GradTarget& target) { return target.node == node; });
    };
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const detail::TensorImpl& impl = *outputs[i].get();
      if (auto* node = static_cast<Node*>(impl.history.get()); node != nullptr) {
        find(*node);
        add(*node, impl.output, seeds[i]);
      }
    }
    for (std::size_t next = 0; next < order_.size(); ++next) {
      if (ends_there && is_target(order_[next])) {
        continue;
      }
      for (std::uint32_t i = 0; i < order_[next]->num_edges(); ++i) {
        if (Node* target = order_[next]->edge(i).node.get(); target != nullptr) {
          find(*target);
        }
      }
    }
    std::ranges::stable_sort(order_, std::ranges::greater(), [](const Node* node) {
      return node->is_leaf() ? std::int64_t{-1} : static_cast<std::int64_t>(node->depth());
    });
    mark_useful();
    check_all();
  }

  void run() {
    for (Node* node : order_) {
      State& state = states_.at(node);
      write_seen_zeros(*node, state);
      const bool any = std::ranges::any_of(state.gradients, &Tensor::defined);
      if (!state.is_useful || !(any || state.has_zero)) {
        continue;
      }
      apply_hooks(*node, state);
      for (GradTarget& target : targets_) {
        if (target.node == node) {
          *target.gradient = state.gradients[target.output];
          target.is_zero = !target.gradient->defined() && state.zeros[target.output];
        }
      }
      if (any && leads_on(*node)) {
        apply(*node, state);
      } else if (!any) {
        pass_zero_on(*node);
      }
      state.gradients.clear();
    }
  }

 private:
  struct State {
    bool is_useful = false;
    bool has_zero = false;
    std::vector<Tensor> gradients;  // of each result
    std::vector<bool> zeros;        // results whose gradient is 0 where it is undefined
  };

  void find(Node& node) {
    const auto [state, is_new] = states_.try_emplace(&node);
    if (is_new) {
      state->second.gradients.resize(node.num_outputs());
      state->second.zeros.resize(node.num_outputs());
      order_.push_back(&node);
    }
  }

  void add(Node& node, std::uint32_t output, const Tensor& gradient) {
    Tensor& sum = states_.at(&node).gradients[output];
    sum = sum.defined() ? sum + gradient : gradient;
  }

  void add_zero(Node& node, std::uint32_t output) {
    State& state = states_.at(&node);
    state.zeros[output] = state.has_zero = true;
  }

  void pass_zero_on(Node& node) {
    for (std::uint32_t i = 0; i < node.num_edges(); ++i) {
      if (leads_on(node, i)) {
        add_zero(*node.edge(i).node, node.edge(i).output);
      }
    }
  }

  bool leads_on(Node& node, std::uint32_t i) {
    const auto target = states_.find(node.edge(i).node.get());
    return target != states_.end() && target->second.is_useful;
  }
  bool leads_on(Node& node) {
    for (std::uint32_t i = 0; i < node.num_edges(); ++i) {
      if (leads_on(node, i)) {
        return true;
      }
    }
    return false;
  }

  void mark_useful() {
    for (const GradTarget& target : targets_) {
      if (const auto found = states_.find(target.node); found != states_.end()) {
        found->second.is_useful = true;
      }
    }
    for (auto node = order_.rbegin(); node != order_.rend(); ++node) {
      State& state = states_.at(*node);
      state.is_useful = state.is_useful || leads_on(**node);
    }
  }

  // Before anything is computed.
  void check_all() {
    for (Node* node : order_) {
      if (!states_.at(node).is_useful || !leads_on(*node)) {
        continue;
      }
      check<AutogradError>(!node->released(),
                           "grad: the graph through '{}' was freed by an earlier pass; pass retain_graph to that one, "
                           "or compute the forward pass again [TDM-E202]",
                           node->op());
      check<AutogradError>(node->has_graph(),
                           "grad: '{}' has no second derivative: leave create_graph out, or compute it by ops that "
                           "have one",
                           node->op());
      for (std::uint32_t i = 0; i < node->num_edges(); ++i) {
        const Edge& edge = node->edge(i);
        check<AutogradError>(!edge.node || edge.generation == edge.node->generation(),
                             "grad: a tensor was moved to another device or dtype after the forward pass that used it; "
                             "compute the forward pass again");
      }
    }
  }

  void apply(Node& node, const State& state) {
    std::vector<GradientGraph::Input> inputs(node.num_edges());
    for (std::uint32_t i = 0; i < node.num_edges(); ++i) {
      inputs[i].wanted = leads_on(node, i);
    }
    GradientGraph gradients(node, state.gradients, inputs);
    try {
      node.apply_graph(gradients);
    } catch (Error& error) {
      error.add_context(fmt::format("in the backward pass of '{}'", node.op()));
      throw;
    }
    for (std::uint32_t i = 0; i < node.num_edges(); ++i) {
      const Edge& edge = node.edge(i);
      if (inputs[i].gradient.defined()) {
        add(*edge.node, edge.output, inputs[i].gradient);
      } else if (inputs[i].wanted && inputs[i].is_zero) {
        add_zero(*edge.node, edge.output);
      }
    }
  }

  // Hooks see a zero that nobody computed as a tensor.
  static void write_seen_zeros(Node& node, State& state) {
    for (std::uint32_t i = 0; i < node.num_outputs() && state.has_zero; ++i) {
      const Output& out = node.output(i);
      if (out.hooks && state.zeros[i] && !state.gradients[i].defined()) {
        state.gradients[i] = zeros(out.sizes, {.dtype = out.dtype, .device = out.device});
      }
    }
  }

  static void apply_hooks(Node& node, State& state) {
    for (std::uint32_t i = 0; i < node.num_outputs(); ++i) {
      Tensor& gradient = state.gradients[i];
      if (!gradient.defined() || !node.output(i).hooks) {
        continue;
      }
      const auto hooks = *node.output(i).hooks;  // a hook may remove itself
      for (const auto& [id, hook] : hooks) {
        if (Tensor replaced = hook(gradient); replaced.defined()) {
          check<ShapeError>(replaced.shape() == gradient.shape() && replaced.dtype() == gradient.dtype(),
                            "gradient hook: returned {} {}, the gradient is {} {}", replaced.shape(), replaced.dtype(),
                            gradient.shape(), gradient.dtype());
          gradient = std::move(replaced);
        }
      }
    }
  }

  std::vector<GradTarget>& targets_;
  std::vector<Node*> order_;
  std::unordered_map<Node*, State> states_;
};

}  // namespace

void GradientGraph::give_by(const Tensor& result, const std::vector<std::pair<std::uint32_t, Tensor>>& inputs) {
  std::vector<Tensor> gradients(inputs.size());
  std::vector<GradTarget> targets;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const detail::TensorImpl& impl = *inputs[i].second.get();
    if (impl.history && wants(inputs[i].first)) {
      targets.push_back({static_cast<Node*>(impl.history.get()), impl.output, &gradients[i]});
    }
  }
  GraphPass(std::span(&result, 1), {output()}, targets, true).run();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (gradients[i].defined()) {
      give(inputs[i].first, gradients[i]);
    }
  }
  for (const GradTarget& target : targets) {
    if (target.is_zero) {
      give_zero(inputs[static_cast<std::size_t>(target.gradient - gradients.data())].first);
    }
  }
}

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs, const GradOptions& options) {
  const SpanScope timed(Phase::backward);
  std::vector<Tensor> gradients(inputs.size());
  std::vector<GradTarget> targets;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const detail::TensorImpl& impl = *inputs[i].get();
    Node* const node = history_of(impl, "grad");
    check<AutogradError>(node != nullptr, "grad: input {} {} does not require a gradient (requires_grad_())", i,
                         impl.view.sizes);
    targets.push_back({node, impl.output, &gradients[i]});
  }
  check<ConfigError>(!outputs.empty() && !inputs.empty(),
                     "grad: {} outputs and {} inputs; expected one or more of each", outputs.size(), inputs.size());
  bool depends = false;
  for (const Tensor& output : outputs) {
    depends = history_of(*output.get(), "grad") != nullptr || depends;
  }
  check<AutogradError>(depends,
                       "grad: no output depends on anything that requires a gradient (was it computed under "
                       "NoGradGuard, or from detached values?) [TDM-E203]");
  std::vector<Tensor> seeds = seeds_of(outputs, options.grad_outputs);
  if (options.create_graph) {
    core::ThreadState recording = core::thread_state();
    recording.grad_enabled = true;
    recording.autocast = nullptr;  // gradients have the types of what they are gradients of
    const core::ThreadStateScope scope(recording);
    GraphPass(outputs, seeds, targets).run();
  } else {
    const core::Ref<Node> root = root_of(outputs, std::move(seeds));
    run_gradients(*root, targets, options.retain_graph.value_or(false));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!gradients[i].defined() && targets[i].is_zero) {
      gradients[i] = zeros_like(inputs[i]);
    }
    check<AutogradError>(
        gradients[i].defined() || options.allow_unused,
        "grad: input {} {} takes no part in the outputs; leave it out, or pass {{.allow_unused = true}} "
        "for an undefined gradient",
        i, inputs[i].shape());
  }
  return gradients;
}

std::vector<Tensor> hessian_vector_product(const Tensor& output, std::span<const Tensor> inputs,
                                           std::span<const Tensor> v) {
  check<ConfigError>(v.size() == inputs.size(), "hessian_vector_product: {} inputs, and a vector of {} parts",
                     inputs.size(), v.size());
  const std::vector<Tensor> first = grad(std::span(&output, 1), inputs, {.create_graph = true});
  Tensor product;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check<ShapeError>(v[i].shape() == inputs[i].shape(),
                      "hessian_vector_product: part {} of the vector is {}, input {}", i, v[i].shape(),
                      inputs[i].shape());
    const Tensor part = (first[i] * v[i]).sum();
    product = product.defined() ? product + part : part;
  }
  std::vector<Tensor> result = product.requires_grad() ? grad(std::span(&product, 1), inputs, {.allow_unused = true})
                                                       : std::vector<Tensor>(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {  // a linear part has the derivative 0
    result[i] = result[i].defined() ? result[i] : zeros_like(inputs[i]);
  }
  return result;
}

}  // namespace tandem::inline v0::autograd

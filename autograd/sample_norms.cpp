#include <tandem/autograd/sample_norms.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <tandem/autograd/ops.h>
#include <tandem/autograd/record.h>
#include <tandem/autograd/sample_squares.h>
#include <tandem/core/check.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::autograd {

namespace {

using Parameters = std::unordered_map<const Node*, std::string>;  // with a name for messages

Parameters known(std::span<const Tensor> parameters) {
  Parameters known;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Leaf* leaf = leaf_of(*parameters[i].get());
    check<AutogradError>(leaf != nullptr,
                         "per_sample_gradient_norms: parameter {} {} is no leaf that requires a gradient", i,
                         parameters[i].shape());
    known.emplace(
        leaf, leaf->name.empty() ? fmt::format("{} {}", i, parameters[i].shape()) : fmt::format("'{}'", leaf->name));
  }
  return known;
}

// All nodes from `last` on, but for the parameters.
std::vector<Node*> nodes_from(Node& last, const Parameters& parameters) {
  std::vector<Node*> order{&last};
  std::unordered_set<const Node*> seen{&last};
  for (std::size_t next = 0; next < order.size(); ++next) {
    for (std::uint32_t i = 0; i < order[next]->num_edges(); ++i) {
      Node* target = order[next]->edge(i).node.get();
      if (target != nullptr && !parameters.contains(target) && seen.insert(target).second) {
        order.push_back(target);
      }
    }
  }
  return order;
}

// A parameter in another type, as an AutocastScope gives it to a layer, stands for the parameter.
void add_casts(const std::vector<Node*>& nodes, Parameters& parameters) {
  for (Node* node : nodes) {
    if (std::string_view(node->op()) == "to" && node->num_edges() == 1) {
      if (const auto parameter = parameters.find(node->edge(0).node.get()); parameter != parameters.end()) {
        const std::string name = parameter->second;
        parameters.emplace(node, name);
      }
    }
  }
}

// The ops that take a parameter.
std::vector<Node*> users_of(const Parameters& parameters, const std::vector<Node*>& nodes) {
  std::unordered_set<std::string> used;
  std::vector<Node*> users;
  for (Node* node : nodes) {
    bool takes = false;
    for (std::uint32_t i = 0; i < node->num_edges() && !parameters.contains(node); ++i) {
      if (const auto parameter = parameters.find(node->edge(i).node.get()); parameter != parameters.end()) {
        check<AutogradError>(used.insert(parameter->second).second,
                             "per_sample_gradient_norms: parameter {} is used twice, by '{}' the second time; the norm "
                             "of a sum is not known from its parts. Leave it out",
                             parameter->second, node->op());
        takes = true;
      }
    }
    if (takes) {
      users.push_back(node);
    }
  }
  return users;
}

void add_squares(Node& node, const Tensor& gradient, const Parameters& parameters, Tensor& squares) {
  std::vector<bool> wanted(node.num_edges());
  std::string name;
  for (std::uint32_t i = 0; i < node.num_edges(); ++i) {
    const auto parameter = parameters.find(node.edge(i).node.get());
    wanted[i] = parameter != parameters.end();
    name = wanted[i] && name.empty() ? parameter->second : name;
  }
  check<ShapeError>(gradient.dim() >= 1 && gradient.size(0) == squares.size(0),
                    "per_sample_gradient_norms: the result {} of '{}' has not the {} samples in its first dimension",
                    gradient.shape(), node.op(), squares.size(0));
  SampleSquares samples(node, gradient, std::move(wanted), squares);
  check<AutogradError>(node.add_sample_squares(samples) && !samples.has_left_out(),
                       "per_sample_gradient_norms: '{}' takes parameter {}, and has no rule for single samples; linear "
                       "layers, convolutions, embeddings and layer norms have one. Leave the parameter out",
                       node.op(), name);
}

}  // namespace

void SampleSquares::require_batch(std::int64_t samples) const {
  check<ShapeError>(samples == batch(), "per_sample_gradient_norms: '{}' has {} samples, and there are {} losses", op(),
                    samples, batch());
}

Tensor SampleSquares::stacked(const std::vector<Tensor>& numbers) { return stack(numbers); }

Tensor per_sample_gradient_norms(const Tensor& losses, std::span<const Tensor> parameters) {
  check<ShapeError>(losses.dim() == 1,
                    "per_sample_gradient_norms: expected a loss for each sample, [batch], got {}; ask the loss for "
                    "Reduction::none",
                    losses.shape());
  Node* const last = history_of(*losses.get(), "per_sample_gradient_norms");
  check<AutogradError>(last != nullptr,
                       "per_sample_gradient_norms: the losses depend on nothing that requires a "
                       "gradient [TDM-E203]");
  Parameters wanted = known(parameters);
  check<AutogradError>(!wanted.contains(last), "per_sample_gradient_norms: the losses are themselves parameter {}",
                       wanted.contains(last) ? wanted.at(last) : "");
  const std::vector<Node*> nodes = nodes_from(*last, wanted);
  add_casts(nodes, wanted);
  const std::vector<Node*> users = users_of(wanted, nodes);
  for (const Node* user : users) {
    check<AutogradError>(user->num_outputs() == 1,
                         "per_sample_gradient_norms: '{}' takes a parameter and has several results; leave the "
                         "parameter out",
                         user->op());
  }
  std::vector<Tensor> gradients(users.size());
  std::vector<GradTarget> targets;
  for (std::size_t i = 0; i < users.size(); ++i) {
    targets.push_back({.node = users[i], .output = 0, .gradient = &gradients[i]});
  }
  core::ThreadState plain = core::thread_state();
  plain.grad_enabled = false;
  plain.autocast = nullptr;
  const core::ThreadStateScope scope(plain);
  const DType wide = losses.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Tensor squares = zeros(losses.shape(), {.dtype = wide, .device = losses.device()});
  if (!users.empty() && losses.numel() > 0) {
    const core::Ref<Node> root(new ClosureNode(
        "per_sample_gradient_norms", [seed = ones_like(losses)](Gradients& g) { g.deliver(0, seed.raw(), false); }));
    root->connect(std::vector<Tensor>{losses});
    run_gradients(*root, targets, true);
  }
  for (std::size_t i = 0; i < users.size(); ++i) {
    if (gradients[i].defined()) {
      add_squares(*users[i], gradients[i], wanted, squares);
    }
  }
  return squares.sqrt().to(losses.dtype());
}

}  // namespace tandem::inline v0::autograd

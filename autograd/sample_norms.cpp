#include <tandem/autograd/sample_norms.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <tandem/autograd/ops.h>
#include <tandem/autograd/record.h>
#include <tandem/autograd/sample_squares.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
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

// Ops that take a parameter, as the graph has them.
std::vector<Node*> users_of(const Parameters& parameters, Node& from) {
  std::vector<Node*> order{&from};
  std::unordered_set<const Node*> seen{&from};
  std::unordered_set<const Node*> used;
  std::vector<Node*> users;
  for (std::size_t next = 0; next < order.size(); ++next) {
    Node& node = *order[next];
    bool takes = false;
    for (std::uint32_t i = 0; i < node.num_edges(); ++i) {
      Node* target = node.edge(i).node.get();
      if (target == nullptr) {
        continue;
      }
      if (const auto parameter = parameters.find(target); parameter != parameters.end()) {
        check<AutogradError>(used.insert(target).second,
                             "per_sample_gradient_norms: parameter {} is used twice, by '{}' the second time; the norm "
                             "of a sum is not known from its parts. Leave it out",
                             parameter->second, node.op());
        takes = true;
      } else if (seen.insert(target).second) {
        order.push_back(target);
      }
    }
    if (takes) {
      users.push_back(&node);
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
  SampleSquares samples(node, gradient, wanted, squares);
  check<AutogradError>(node.add_sample_squares(samples),
                       "per_sample_gradient_norms: '{}' takes parameter {}, and has no rule for single samples; linear "
                       "layers, convolutions, embeddings and layer norms have one. Leave the parameter out",
                       node.op(), name);
}

}  // namespace

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
  const Parameters wanted = known(parameters);
  const std::vector<Node*> users = users_of(wanted, *last);
  std::vector<Tensor> gradients(users.size());
  std::vector<GradTarget> targets;
  for (std::size_t i = 0; i < users.size(); ++i) {
    targets.push_back({.node = users[i], .output = 0, .gradient = &gradients[i]});
  }
  const NoGradGuard no_grad;
  Tensor squares = zeros(losses.shape(), {.dtype = losses.dtype(), .device = losses.device()});
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
  return squares.sqrt();
}

}  // namespace tandem::inline v0::autograd

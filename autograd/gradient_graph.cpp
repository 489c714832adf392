#include <tandem/autograd/gradient_graph.h>

#include <tandem/autograd/ops.h>
#include <tandem/autograd/record.h>
#include <tandem/core/check.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::autograd {

namespace {

Tensor with_history(const detail::View& view, const core::Ref<Node>& node, std::uint32_t output) {
  Tensor tensor(view);
  detail::TensorImpl& impl = *tensor.get();
  impl.history = node;
  impl.output = output;
  impl.history_version = view.storage->version();
  return tensor;
}

core::Ref<Node> alias_of(const Edge& edge, const detail::View& view) {
  core::Ref<Node> node(new ClosureNode("alias", [](auto& g) {
    if constexpr (is_graph<decltype(g)>) {
      g.give(0, g.output());
    } else {
      g.deliver(0, g.output(), false);
    }
  }));
  node->connect(edge);
  node->describe_output(0, view);
  return node;
}

}  // namespace

void Node::apply_graph(GradientGraph&) {
  fail<AutogradError>("grad: '{}' has no second derivative", op_);  // grad() asks has_graph() first
}

// An op may have saved a dense copy of other sizes.
detail::View GradientGraph::as_input(std::uint32_t i, const Saved& saved) const {
  const detail::View& view = saved.get(*this);
  return !node_.edge(i).node || view.sizes == input_sizes(i) ? view : *detail::try_reshape(view, input_sizes(i));
}

Tensor GradientGraph::input(std::uint32_t i, const Saved& saved) const {
  const Edge& edge = node_.edge(i);
  const detail::View view = as_input(i, saved);
  if (!edge.node) {
    return Tensor(view);
  }
  // A leaf has one tensor, the user's: others lead there through a node.
  return edge.node->is_leaf() ? alias(i, saved) : with_history(view, edge.node, edge.output);
}

Tensor GradientGraph::alias(std::uint32_t i, const Saved& saved) const {
  const Edge& edge = node_.edge(i);
  const detail::View view = as_input(i, saved);
  return edge.node ? with_history(view, alias_of(edge, view), 0) : Tensor(view);
}

Tensor GradientGraph::result(const Saved& saved, std::uint32_t i) const {
  return with_history(saved.get(*this), core::Ref<Node>(&node_), i);
}

void GradientGraph::give(std::uint32_t i, const Tensor& gradient) {
  if (wants(i)) {
    const Tensor fitting = sum_to_size(gradient, input_sizes(i)).to(input_dtype(i));
    Tensor& sum = inputs_[i].gradient;
    sum = sum.defined() ? sum + fitting : fitting;
  }
}

Tensor sum_to_size(const Tensor& tensor, const Shape& sizes) {
  if (tensor.shape() == sizes) {
    return tensor;
  }
  const int added = tensor.dim() - sizes.ndim();
  Shape repeated;
  for (int dim = 0; dim < tensor.dim(); ++dim) {
    if (dim < added || (sizes[dim - added] == 1 && tensor.size(dim) != 1)) {
      repeated.push_back(dim);
    }
  }
  return (repeated.empty() ? tensor : tensor.sum(repeated, true)).reshape(sizes);
}

}  // namespace tandem::inline v0::autograd

#include <tandem/parallel/tensor_parallel/functions.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/autograd/record.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

using autograd::Gradients;
using tandem::detail::View;

namespace {

// A group that may be gone when the backward pass needs it.
class Members {
 public:
  explicit Members(ProcessGroup& group) : group_(&group), queue_(group.queue()) {}

  int size() const { return group().size(); }

  View sum_of(const View& values) const {
    const NoGradGuard no_grad;
    const Tensor sum = Tensor(values).clone();
    group().all_reduce(sum);
    return sum.raw();
  }

  // The ranks' values side by side along `dim`.
  View joined(const View& values, int dim) const {
    const NoGradGuard no_grad;
    Shape sizes = values.sizes;
    sizes[dim] *= size();
    View whole = tandem::detail::empty_view(sizes, values.dtype, values.device());
    group().all_gather(parts_of(whole, dim), Tensor(values));
    return whole;
  }

  View own_part(const View& whole, int dim) const {
    const std::int64_t share = whole.sizes[dim] / size();
    return tandem::detail::narrow(whole, dim, share * group().rank(), share);
  }

  // This rank's part of the sum of the ranks' values.
  View part_of_sum(const View& values, int dim) const {
    const NoGradGuard no_grad;
    Shape sizes = values.sizes;
    sizes[dim] /= size();
    View part = tandem::detail::empty_view(sizes, values.dtype, values.device());
    group().reduce_scatter(Tensor(part), parts_of(values, dim));
    return part;
  }

 private:
  ProcessGroup& group() const {
    check<ConfigError>(!queue_->is_closed(),
                       "tensor parallelism: the process group is gone; keep it until the backward pass is done");
    return *group_;
  }

  std::vector<Tensor> parts_of(const View& whole, int dim) const {
    const std::int64_t share = whole.sizes[dim] / size();
    std::vector<Tensor> parts;
    for (int rank = 0; rank < size(); ++rank) {
      parts.emplace_back(tandem::detail::narrow(whole, dim, share * rank, share));
    }
    return parts;
  }

  ProcessGroup* group_;
  std::shared_ptr<detail::CommQueue> queue_;
};

// The dimension to be cut into parts.
int divided(const Tensor& x, int dim, const ProcessGroup& group, const char* op) {
  dim = wrap_dim(dim, x.dim(), op);
  check<ShapeError>(x.size(dim) % group.size() == 0, "{}: dimension {} of {} is not divisible among {} ranks", op, dim,
                    x.shape(), group.size());
  return dim;
}

}  // namespace

Tensor copy_to_group(const Tensor& x, ProcessGroup& group) {
  return autograd::record("copy_to_group", x.raw(), {&x}, [&] {
    return [members = Members(group)](Gradients& g) { g.deliver(0, members.sum_of(g.output()), true); };
  });
}

Tensor reduce_from_group(const Tensor& x, ProcessGroup& group) {
  return autograd::record("reduce_from_group", Members(group).sum_of(x.raw()), {&x},
                          [] { return [](Gradients& g) { g.deliver(0, g.output(), false); }; });
}

Tensor scatter_to_group(const Tensor& x, ProcessGroup& group, int dim) {
  dim = divided(x, dim, group, "scatter_to_group");
  return autograd::record("scatter_to_group", Members(group).own_part(x.raw(), dim), {&x}, [&] {
    return [members = Members(group), dim](Gradients& g) { g.deliver(0, members.joined(g.output(), dim), true); };
  });
}

Tensor gather_from_group(const Tensor& x, ProcessGroup& group, int dim) {
  dim = wrap_dim(dim, x.dim(), "gather_from_group");
  return autograd::record("gather_from_group", Members(group).joined(x.raw(), dim), {&x}, [&] {
    return [members = Members(group), dim](Gradients& g) { g.deliver(0, members.own_part(g.output(), dim), false); };
  });
}

Tensor gather_from_sequence(const Tensor& x, ProcessGroup& group) {
  wrap_dim(0, x.dim(), "gather_from_sequence");
  return autograd::record("gather_from_sequence", Members(group).joined(x.raw(), 0), {&x}, [&] {
    return [members = Members(group)](Gradients& g) { g.deliver(0, members.part_of_sum(g.output(), 0), true); };
  });
}

Tensor reduce_scatter_to_sequence(const Tensor& x, ProcessGroup& group) {
  divided(x, 0, group, "reduce_scatter_to_sequence");
  return autograd::record("reduce_scatter_to_sequence", Members(group).part_of_sum(x.raw(), 0), {&x}, [&] {
    return [members = Members(group)](Gradients& g) { g.deliver(0, members.joined(g.output(), 0), true); };
  });
}

void divide_among(const Tensor& parameter, ProcessGroup& group) {
  autograd::Leaf* const leaf = autograd::leaf_of(*parameter.unresolved());
  check<AutogradError>(leaf != nullptr,
                       "divide_among: the tensor {} is no leaf that requires a gradient; pass the layer's parameter",
                       parameter.shape());
  const std::shared_ptr<autograd::StepPartners> before = leaf->partners.get(autograd::PartnerKind::tensor);
  check<ConfigError>(before == nullptr || before == group.partners(),
                     "divide_among: the parameter {} is divided among the ranks of another group already; divide it "
                     "once, among the ranks of both",
                     parameter.shape());
  leaf->partners.set(autograd::PartnerKind::tensor, group.partners());
}

}  // namespace tandem::inline v0::parallel

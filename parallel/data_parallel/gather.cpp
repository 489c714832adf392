#include <tandem/parallel/data_parallel/gather.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <tandem/autograd/record.h>
#include <tandem/core/check.h>
#include <tandem/core/warning.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

using namespace autograd;
using tandem::detail::View;

namespace {

void check_alike(const std::vector<Tensor>& outputs, int dim) {
  const Tensor& first = outputs.front();
  for (std::size_t i = 1; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    Shape expected = first.shape();
    if (expected.ndim() == output.dim() && output.dim() > 0) {
      expected[dim] = output.shape()[dim];
    }
    check<ShapeError>(expected == output.shape(),
                      "gather: replica 0 gives {}, replica {} {}: outside dimension {} they must be equal",
                      first.shape(), i, output.shape(), dim);
    check<DTypeError>(output.dtype() == first.dtype(), "gather: replica 0 gives {}, replica {} {}", first.dtype(), i,
                      output.dtype());
  }
}

std::vector<Tensor> as_rows(const std::vector<Tensor>& scalars) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    core::warn(fmt::format(
        "gather: the {} replicas gave scalars, which become a vector of as many elements: take its mean, or "
        "compute the loss inside the replicas (DataParallel::loss)",
        scalars.size()));
  }
  std::vector<Tensor> rows;
  for (const Tensor& scalar : scalars) {
    rows.push_back(scalar.unsqueeze(0));
  }
  return rows;
}

// Delivers a replica's part of the gradient on the replica's device.
void deliver_part(Gradients& g, std::uint32_t input, const View& part, Device device) {
  if (tandem::detail::share_memory(part.device(), device)) {
    g.deliver(input, tandem::detail::seen_from(device, part), false);
  } else {
    const Destination to = g.destination(input);
    tandem::detail::copy(to.view, part, to.accumulate);
  }
}

}  // namespace

Tensor gather(const std::vector<Tensor>& outputs, Device target, int dim) {
  check<ConfigError>(!outputs.empty(), "gather: there is nothing to join");
  require_available(target);
  const auto defined = static_cast<std::size_t>(
      std::count_if(outputs.begin(), outputs.end(), [](const Tensor& output) { return output.defined(); }));
  check<ConfigError>(defined == 0 || defined == outputs.size(),
                     "gather: {} of {} replicas gave an undefined tensor in the place where the others have one",
                     outputs.size() - defined, outputs.size());
  if (defined == 0) {
    return {};
  }
  if (outputs.front().dim() == 0) {
    check_alike(outputs, 0);
    return gather(as_rows(outputs), target, 0);
  }
  dim = wrap_dim(dim, outputs.front().dim(), "gather");
  check_alike(outputs, dim);
  Shape sizes = outputs.front().shape();
  sizes[dim] = 0;
  std::vector<std::int64_t> starts;
  std::vector<Device> devices;
  bool recorded = false;
  for (const Tensor& output : outputs) {
    starts.push_back(sizes[dim]);
    devices.push_back(output.device());
    sizes[dim] += output.shape()[dim];
    recorded = recorded || records({&output});
  }
  Tensor result(tandem::detail::empty_view(sizes, outputs.front().dtype(), target));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const View& in = outputs[i].raw();
    tandem::detail::copy(tandem::detail::narrow(result.raw(), dim, starts[i], in.sizes[dim]), in);
  }
  if (recorded) {
    const auto closure = [dim, starts = std::move(starts), devices = std::move(devices)](Gradients& g) {
      for (std::uint32_t i = 0; i < starts.size(); ++i) {
        if (g.wants(i)) {
          deliver_part(g, i, tandem::detail::narrow(g.output(), dim, starts[i], g.input_sizes(i)[dim]), devices[i]);
        }
      }
    };
    core::Ref<Node> node(new ClosureNode("gather", closure));
    node->connect(outputs);
    set_history(result, std::move(node));
  }
  return result;
}

void detail::throw_different(const char* what, std::size_t first, std::size_t other) {
  fail<ConfigError>(
      "gather: the replicas' outputs are built differently: {} {} in replica 0, {} in another. What a forward returns "
      "may not depend on its part of the batch",
      first, what, other);
}

void detail::throw_values_differ() {
  fail<ConfigError>(
      "gather: the replicas' outputs hold different plain values in one place, of which the result can have only one; "
      "return it as a tensor with a row per example, or call parallel_apply(), which gives every replica's output");
}

}  // namespace tandem::inline v0::parallel

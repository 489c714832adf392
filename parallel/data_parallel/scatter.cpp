#include <tandem/parallel/data_parallel/scatter.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include <tandem/autograd/record.h>
#include <tandem/core/check.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

using namespace autograd;
using tandem::detail::View;

namespace {

// Returns `part` on `device`: the same memory if both devices share memory, else a copy.
View placed(const View& part, Device device) {
  if (tandem::detail::share_memory(part.device(), device)) {
    return tandem::detail::seen_from(device, part);
  }
  View there = tandem::detail::empty_view(part.sizes, part.dtype, device);
  tandem::detail::copy(there, part);
  return there;
}

// Returns the backward function: joins the parts' gradients. A part without gradient counts as 0.
auto join_gradients(int dim, std::vector<std::int64_t> starts, std::vector<std::int64_t> lengths) {
  return [dim, starts = std::move(starts), lengths = std::move(lengths)](Gradients& g) {
    const Destination to = g.destination(0);
    for (std::uint32_t i = 0; i < starts.size(); ++i) {
      const View part = tandem::detail::narrow(to.view, dim, starts[i], lengths[i]);
      if (g.output(i).defined()) {
        tandem::detail::copy(part, g.output(i), to.accumulate);
      } else if (to.accumulate == kernels::Accumulate::no) {
        tandem::detail::fill(part, 0);
      }
    }
  };
}

}  // namespace

std::vector<Tensor> scatter(const Tensor& input, const std::vector<Device>& devices, int dim) {
  check<ConfigError>(!devices.empty(), "scatter: no devices are given");
  for (const Device device : devices) {
    require_available(device);
  }
  if (!input.defined()) {
    return std::vector<Tensor>(devices.size());
  }
  std::vector<Tensor> parts;
  if (input.dim() == 0) {
    for (const Device device : devices) {
      parts.push_back(input.to(device));
    }
    return parts;
  }
  dim = wrap_dim(dim, input.dim(), "scatter");
  const std::int64_t rows = input.size(dim);
  const auto count = static_cast<std::int64_t>(devices.size());
  const std::int64_t share = std::max<std::int64_t>(1, (rows + count - 1) / count);
  std::vector<std::int64_t> starts;
  std::vector<std::int64_t> lengths;
  for (std::int64_t start = 0; start < std::max<std::int64_t>(1, rows); start += share) {
    starts.push_back(start);
    lengths.push_back(std::min(share, rows - start));
  }
  for (std::size_t i = 0; i < starts.size(); ++i) {
    parts.emplace_back(placed(tandem::detail::narrow(input.raw(), dim, starts[i], lengths[i]), devices[i]));
  }
  if (records({&input})) {
    const auto outputs = static_cast<std::uint32_t>(parts.size());
    core::Ref<Node> node(
        new ClosureNode("scatter", join_gradients(dim, std::move(starts), std::move(lengths)), outputs));
    node->connect({&input});
    for (std::uint32_t i = 0; i < outputs; ++i) {
      set_history(parts[i], node, i);
    }
  }
  return parts;
}

std::vector<std::vector<Tensor>> detail::scatter_all(const std::vector<Tensor>& inputs,
                                                     const std::vector<Device>& devices, int dim) {
  const auto cut_up = [](const Tensor& tensor) { return tensor.defined() && tensor.dim() > 0; };
  const auto first = std::find_if(inputs.begin(), inputs.end(), cut_up);
  std::vector<std::vector<Tensor>> parts;
  std::size_t count = devices.size();
  for (const Tensor& input : inputs) {
    if (cut_up(input)) {
      const std::int64_t rows = input.size(wrap_dim(dim, input.dim(), "scatter"));
      const std::int64_t expected = first->size(wrap_dim(dim, first->dim(), "scatter"));
      check<ShapeError>(rows == expected,
                        "scatter: inputs {} and {} differ in dimension {}, along which they are cut into parts that "
                        "belong together; what all replicas need as a whole should be a buffer of the module",
                        first->shape(), input.shape(), dim);
    }
    parts.push_back(scatter(input, devices, dim));
    count = std::min(count, parts.back().size());
  }
  for (std::vector<Tensor>& part : parts) {
    part.resize(count);
  }
  return parts;
}

}  // namespace tandem::inline v0::parallel

#include <tandem/parallel/data_parallel/scatter_gather.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include <tandem/autograd/record.h>
#include <tandem/core/check.h>
#include <tandem/core/warning.h>
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
  const MemoryFormat format = device.type == DeviceType::cuda ? part.memory_format() : MemoryFormat::contiguous;
  View there = tandem::detail::empty_view(part.sizes, part.dtype, device, format);
  tandem::detail::copy(there, part);
  return there;
}

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
        "compute the loss inside the replicas (DataParallel::loss) [TDM-W603]",
        scalars.size()));
  }
  std::vector<Tensor> rows;
  for (const Tensor& scalar : scalars) {
    rows.push_back(scalar.unsqueeze(0));
  }
  return rows;
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
  const auto most = static_cast<std::int64_t>(devices.size());
  const std::int64_t share = std::max<std::int64_t>(1, (rows + most - 1) / most);
  const auto part_of = [dim, rows, share](const View& whole, std::uint32_t i) {
    return tandem::detail::narrow(whole, dim, i * share, std::min(share, rows - i * share));
  };
  const auto count = static_cast<std::uint32_t>(std::max<std::int64_t>(1, (rows + share - 1) / share));
  for (std::uint32_t i = 0; i < count; ++i) {
    parts.emplace_back(placed(part_of(input.raw(), i), devices[i]));
  }
  if (records({&input})) {
    const auto join_gradients = [part_of, count](Gradients& g) {
      const Destination to = g.destination(0);
      for (std::uint32_t i = 0; i < count; ++i) {
        const View part = part_of(to.view, i);
        if (g.output(i).defined()) {
          tandem::detail::copy(part, g.output(i), to.accumulate);
        } else if (to.accumulate == kernels::Accumulate::no) {
          tandem::detail::fill(part, 0);  // a part without a gradient counts as 0
        }
      }
    };
    core::Ref<Node> node(new ClosureNode("scatter", join_gradients, count));
    node->connect({&input});
    for (std::uint32_t i = 0; i < count; ++i) {
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

Tensor gather(const std::vector<Tensor>& outputs, Device target, int dim) {
  check<ConfigError>(!outputs.empty(), "gather: there is nothing to join");
  require_available(target);
  const auto defined = static_cast<std::size_t>(std::ranges::count_if(outputs, &Tensor::defined));
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
  for (const Tensor& output : outputs) {
    starts.push_back(sizes[dim]);
    devices.push_back(output.device());
    sizes[dim] += output.shape()[dim];
  }
  Tensor result(tandem::detail::empty_view(sizes, outputs.front().dtype(), target));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const View& in = outputs[i].raw();
    tandem::detail::copy(tandem::detail::narrow(result.raw(), dim, starts[i], in.sizes[dim]), in);
  }
  if (std::ranges::any_of(outputs, [](const Tensor& output) { return records({&output}); })) {
    const auto closure = [dim, starts = std::move(starts), devices = std::move(devices)](Gradients& g) {
      for (std::uint32_t i = 0; i < starts.size(); ++i) {
        if (g.wants(i)) {
          const View part = tandem::detail::narrow(g.output(), dim, starts[i], g.input_sizes(i)[dim]);
          g.deliver(i, placed(part, devices[i]), !tandem::detail::share_memory(part.device(), devices[i]));
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

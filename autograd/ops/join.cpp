#include <algorithm>

#include <tandem/autograd/ops/common.h>

// Joining and splitting tensors.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

void check_defined(const char* op, const std::vector<Tensor>& tensors) {
  check<ShapeError>(!tensors.empty(), "{}: there is nothing to join", op);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check<ConfigError>(tensors[i].defined(), "{}: tensor {} is undefined [TDM-E113]", op, i);
  }
}

// Converts the tensors to their common dtype. Tensors without dimensions count fully here, as in PyTorch.
std::vector<Tensor> promoted(const char* op, const std::vector<Tensor>& tensors) {
  DType dtype = tensors[0].dtype();
  for (const Tensor& tensor : tensors) {
    check_same_device(op, tensors[0], tensor);
    dtype = promote_types(dtype, tensor.dtype());
  }
  std::vector<Tensor> result;
  result.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    result.push_back(tensor.to(dtype));
  }
  return result;
}

// `op` is the name used in messages and in the graph: cat or stack. All tensors have one dtype and one device.
Tensor join(const char* op, const std::vector<Tensor>& tensors, int dim) {
  const View& first = tensors[0].raw();
  Shape sizes = first.sizes;
  std::vector<std::int64_t> starts;
  sizes[dim] = 0;
  bool recorded = false;
  for (const Tensor& tensor : tensors) {
    Shape expected = tensor.shape();
    if (expected.ndim() == sizes.ndim()) {
      expected[dim] = sizes[dim];
    }
    check<ShapeError>(expected == sizes,
                      "{}: {} and {} differ outside dimension {}, where all sizes must be equal [TDM-E108]", op,
                      first.sizes, tensor.shape(), dim);
    starts.push_back(sizes[dim]);
    sizes[dim] += tensor.shape()[dim];
    recorded = recorded || records({&tensor});
  }
  const bool channels_last = std::ranges::all_of(tensors, [](const Tensor& t) { return t.raw().is_channels_last(); });
  Tensor result(detail::empty_view(sizes, first.dtype, first.device(),
                                   channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const View& in = tensors[i].raw();
    detail::copy(detail::narrow(result.raw(), dim, starts[i], in.sizes[dim]), in);
  }
  if (recorded) {
    const auto closure = [dim, starts = std::move(starts)](auto& g) {
      for (std::uint32_t i = 0; i < starts.size(); ++i) {
        if (!g.wants(i)) {
          continue;
        }
        if constexpr (is_graph<decltype(g)>) {
          g.give(i, g.output().narrow(dim, starts[i], g.input_sizes(i)[dim]));
        } else {
          g.deliver(i, detail::narrow(g.output(), dim, starts[i], g.input_sizes(i)[dim]), false);
        }
      }
    };
    core::Ref<Node> node(new ClosureNode(op, closure));
    node->connect(tensors);
    set_history(result, std::move(node));
  }
  return result;
}

}  // namespace

Tensor cat(const std::vector<Tensor>& tensors, int dim) {
  check_defined("cat", tensors);
  check<ShapeError>(tensors[0].dim() > 0, "cat: scalars cannot be joined; use stack()");
  return join("cat", promoted("cat", tensors), wrap_dim(dim, tensors[0].dim(), "cat"));
}

Tensor stack(const std::vector<Tensor>& tensors, int dim) {
  check_defined("stack", tensors);
  dim = wrap_new_dim(dim, tensors[0].dim(), "stack");
  std::vector<Tensor> rows = promoted("stack", tensors);
  for (Tensor& row : rows) {
    check<ShapeError>(row.shape() == tensors[0].shape(), "stack: shapes {} and {} differ [TDM-E108]",
                      tensors[0].shape(), row.shape());
    row = row.unsqueeze(dim);
  }
  return join("stack", rows, dim);
}

std::vector<Tensor> Tensor::split(const std::vector<std::int64_t>& lengths, int dim) const {
  dim = wrap_dim(dim, this->dim(), "split");
  std::vector<Tensor> parts;
  std::int64_t start = 0;
  for (const std::int64_t length : lengths) {
    check<ShapeError>(length >= 0 && start + length <= size(dim), "split: parts of {} do not fit dimension {} of {}",
                      fmt::join(lengths, ", "), dim, shape());
    parts.push_back(narrow(dim, start, length));
    start += length;
  }
  check<ShapeError>(start == size(dim), "split: parts of {} do not add up to dimension {} of {}",
                    fmt::join(lengths, ", "), dim, shape());
  return parts;
}

std::vector<Tensor> Tensor::split(std::int64_t length, int dim) const {
  dim = wrap_dim(dim, this->dim(), "split");
  check<ConfigError>(length > 0, "split: the parts' length must be at least 1, got {}", length);
  std::vector<Tensor> parts;
  const std::int64_t whole = size(dim);
  std::int64_t rest = whole;
  do {
    const std::int64_t part = std::min(length, rest);
    parts.push_back(narrow(dim, whole - rest, part));
    rest -= part;
  } while (rest > 0);
  return parts;
}

std::vector<Tensor> Tensor::chunk(std::int64_t chunks, int dim) const {
  check<ConfigError>(chunks > 0, "chunk: needs at least 1 chunk, got {}", chunks);
  const std::int64_t whole = size(wrap_dim(dim, this->dim(), "chunk"));
  if (whole == 0) {  // the requested number of parts, as in PyTorch
    return split(std::vector<std::int64_t>(static_cast<std::size_t>(chunks), 0), dim);
  }
  return split(std::max<std::int64_t>(1, whole / chunks + (whole % chunks != 0 ? 1 : 0)), dim);
}

}  // namespace tandem::inline v0

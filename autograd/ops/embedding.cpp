#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/index.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// The row without gradient, counted from the front, or -1 if no padding_idx is given.
std::int64_t padding_row(std::optional<std::int64_t> padding_idx, std::int64_t rows) {
  if (!padding_idx) {
    return -1;
  }
  check<ConfigError>(*padding_idx >= -rows && *padding_idx < rows, "{}padding_idx {} is outside [{}, {})",
                     core::MessagePrefix{"embedding"}, *padding_idx, -rows, rows);
  return *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
}

void check_embedding(const Tensor& indices, const Tensor& weight) {
  const core::MessagePrefix prefix{"embedding"};
  if (indices.dtype() != DType::i64 && indices.dtype() != DType::i32) [[unlikely]] {
    fail<DTypeError>("{}indices must be i64 or i32, got {}; convert with .to(DType::i64) [TDM-E307]", prefix,
                     indices.dtype());
  }
  check_floating("embedding", weight);
  check<ShapeError>(weight.dim() == 2, "{}the weight must be [rows, dim], got {}", prefix, weight.shape());
  check<DeviceError>(indices.device() == weight.device(),
                     "{}indices are on {}, the weight on {}. Move the indices: x.to(\"{}\") [TDM-E103]", prefix,
                     indices.device(), weight.device(), weight.device());
}

}  // namespace

Tensor embedding(const Tensor& indices, const Tensor& weight, std::optional<std::int64_t> padding_idx) {
  check_embedding(indices, weight);
  const View table = detail::contiguous(weight.raw());
  const std::int64_t skip = padding_row(padding_idx, table.sizes[0]);
  const View index = detail::contiguous(indices.dtype() == DType::i64 ? indices.raw() : indices.to(DType::i64).raw());
  check_in_range("embedding", index, table.sizes[0]);
  Shape sizes = index.sizes;
  sizes.push_back(table.sizes[1]);
  View out = detail::empty_view(sizes, table.dtype, table.device());
  const auto item = static_cast<std::int64_t>(item_size(table.dtype));
  kernels::launch(detail::context_of(out), kernels::IndexSelect{.out = out.data(),
                                                                .in = table.data(),
                                                                .index = static_cast<const std::int64_t*>(index.data()),
                                                                .outer = 1,
                                                                .size = table.sizes[0],
                                                                .count = index.numel(),
                                                                .inner_bytes = table.sizes[1] * item,
                                                                .op = "embedding"});
  return record("embedding", std::move(out), {&weight}, [&] {
    return BySample{[index = Saved(index), around = AroundDim(table.sizes, 0), skip](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor rows = g.constant(index).reshape({-1, 1});
        Tensor grad = g.output().reshape({rows.size(0), around.inner});
        grad = skip < 0 ? grad : where(rows == skip, 0, grad);
        const Tensor none = zeros(g.input_sizes(0), {.dtype = grad.dtype(), .device = grad.device()});
        g.give(0, none.scatter_add(0, rows.expand(grad.shape()), grad));
      } else if constexpr (is_samples<decltype(g)>) {
        const Tensor rows = g.constant(index).reshape({g.batch(), -1});
        Tensor grad = g.output().reshape({g.batch(), rows.size(1), around.inner});
        grad = skip < 0 ? grad : where(rows.unsqueeze(2) == skip, 0, grad);
        if (g.wants(0)) {  // what has the same index meets in one row of the gradient
          const Tensor wide = grad.dtype() == DType::f64 ? grad : grad.to(DType::f32);
          const Tensor same = (rows.unsqueeze(2) == rows.unsqueeze(1)).to(wide.dtype());
          g.add_squares((same * wide.matmul(wide.transpose(1, 2))).sum({1, 2}));
        }
      } else {
        index_add_to(g.sum(0), around, index.get(g), g.output(), "embedding", skip);
      }
    }};
  });
}

}  // namespace tandem::inline v0

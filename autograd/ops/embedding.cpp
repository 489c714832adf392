#include <tandem/autograd/ops/indexing.h>
#include <tandem/kernels/memory.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// The row without gradient, counted from the front; -1 for none.
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
    fail<DTypeError>("{}indices must be i64 or i32, got {}; convert with .to(DType::i64)", prefix, indices.dtype());
  }
  check_floating("embedding", weight);
  if (weight.dim() != 2) [[unlikely]] {
    fail<ShapeError>("{}the weight must be [rows, dim], got {}", prefix, weight.shape());
  }
  if (!(indices.device() == weight.device())) [[unlikely]] {
    fail<DeviceError>("{}indices are on {}, the weight on {}. Move the indices: x.to(\"{}\")", prefix, indices.device(),
                      weight.device(), weight.device());
  }
}

// rows[index[i]] += in[i] in the order of i. 16-bit sums are rounded once.
void add_rows(const View& rows, const View& in, const View& index, std::int64_t skip) {
  const View wide = is_floating_point(rows.dtype) && item_size(rows.dtype) == 2
                        ? detail::empty_view(rows.sizes, DType::f32, rows.device())
                        : rows;
  const bool narrow = wide.dtype != rows.dtype;
  const View added = narrow ? detail::empty_view(in.sizes, DType::f32, in.device()) : detail::contiguous(in);
  if (narrow) {
    detail::copy(wide, rows);
    detail::copy(added, in);
  }
  kernels::launch(detail::context_of(rows), kernels::IndexAdd{.dtype = wide.dtype,
                                                              .out = wide.data(),
                                                              .in = added.data(),
                                                              .index = static_cast<const std::int64_t*>(index.data()),
                                                              .outer = 1,
                                                              .size = rows.sizes[0],
                                                              .count = index.numel(),
                                                              .inner = rows.sizes[1],
                                                              .skip = skip});
  if (narrow) {
    detail::copy(rows, wide);
  }
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
                                                                .inner_bytes = table.sizes[1] * item});
  return record("embedding", std::move(out), {&weight}, [&] {
    return [index = Saved(index), skip](Gradients& g) {
      const Destination to = g.destination(0);
      if (to.accumulate == Accumulate::no) {
        detail::fill(to.view, 0);
      }
      add_rows(to.view, g.output(), index.get(g), skip);
    };
  });
}

}  // namespace tandem::inline v0

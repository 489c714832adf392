#include <algorithm>

#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/tril.h>

// Lower triangles of matrices.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

void run_tril(const View& in, const Destination& to, std::int64_t diagonal) {
  const std::int64_t rows = in.sizes[in.sizes.ndim() - 2];
  const std::int64_t columns = in.sizes[in.sizes.ndim() - 1];
  kernels::launch(detail::context_of(in), kernels::Tril{.dtype = in.dtype,
                                                        .accumulate = to.accumulate,
                                                        .outer = AroundDim(in.sizes, in.sizes.ndim() - 2).outer,
                                                        .rows = rows,
                                                        .columns = columns,
                                                        .diagonal = std::clamp(diagonal, -rows, columns),
                                                        .in = in.data(),
                                                        .out = to.view.data()});
}

}  // namespace

Tensor Tensor::tril(std::int64_t diagonal) const {
  check<ShapeError>(dim() >= 2, "{}needs at least 2 dimensions, got {}", core::MessagePrefix{"tril"}, shape());
  const View in = detail::contiguous(raw());
  View out = detail::empty_view(in.sizes, in.dtype, in.device());
  run_tril(in, {out, Accumulate::no}, diagonal);
  return record("tril", std::move(out), {this}, [&] {
    return [diagonal](Gradients& g) { run_tril(detail::contiguous(g.output()), g.destination(0), diagonal); };
  });
}

}  // namespace tandem::inline v0

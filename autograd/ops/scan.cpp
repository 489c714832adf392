#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/scan.h>

// Cumulative sums.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

void run_cumsum(const AroundDim& around, const View& in, const Destination& to, bool reverse) {
  kernels::launch(detail::context_of(in), kernels::CumSum{.dtype = in.dtype,
                                                          .reverse = reverse,
                                                          .accumulate = to.accumulate,
                                                          .outer = around.outer,
                                                          .size = around.size,
                                                          .inner = around.inner,
                                                          .in = in.data(),
                                                          .out = to.view.data()});
}

}  // namespace

Tensor Tensor::cumsum(std::int64_t dim) const {
  if (raises({this})) [[unlikely]] {
    return raised(*this).cumsum(dim);
  }
  const View in = detail::contiguous(raw());
  const AroundDim around(in.sizes, wrap_dim(dim, in.sizes.ndim(), "cumsum"));
  View out = detail::empty_view(in.sizes, is_floating_point(in.dtype) ? in.dtype : DType::i64, in.device());
  run_cumsum(around, in, {out, Accumulate::no}, false);
  return record("cumsum", std::move(out), {this}, [&] {
    return [around](Gradients& g) { run_cumsum(around, detail::contiguous(g.output()), g.destination(0), true); };
  });
}

}  // namespace tandem::inline v0

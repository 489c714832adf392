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

// The sums of `x` up to each place, or from there on.
Tensor cumulated(const Tensor& x, const AroundDim& around, bool reverse) {
  const View in = detail::contiguous(x.raw());
  View out = detail::empty_view(in.sizes, is_floating_point(in.dtype) ? in.dtype : DType::i64, in.device());
  run_cumsum(around, in, {out, Accumulate::no}, reverse);
  return record("cumsum", std::move(out), {&x}, [&] {
    return [around, reverse](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, cumulated(g.output(), around, !reverse));
      } else {
        run_cumsum(around, detail::contiguous(g.output()), g.destination(0), !reverse);
      }
    };
  });
}

}  // namespace

Tensor Tensor::cumsum(std::int64_t dim) const {
  if (raises({this})) [[unlikely]] {
    return raised(*this).cumsum(dim);
  }
  return cumulated(*this, AroundDim(shape(), wrap_dim(dim, this->dim(), "cumsum")), false);
}

}  // namespace tandem::inline v0

#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/softmax.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

Tensor run(const char* op, const Tensor& x, int dim, bool log) {
  if (raises({&x})) [[unlikely]] {
    return run(op, raised(x), dim, log);
  }
  check_floating(op, x);
  dim = wrap_dim(dim, x.dim(), op);
  const View in = detail::contiguous(x.raw());
  View out = detail::empty_view(in.sizes, in.dtype, in.device());
  const AroundDim around(in.sizes, dim);
  kernels::launch(detail::context_of(out), kernels::Softmax{.dtype = in.dtype,
                                                            .log = log,
                                                            .outer = around.outer,
                                                            .size = around.size,
                                                            .inner = around.inner,
                                                            .in = in.data(),
                                                            .out = out.data()});
  return record(op, out, {&x}, [&] {
    return [y = Saved(out), around, log, dim](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor result = g.result(y);
        const Tensor weighted = log ? g.output() : g.output() * result;
        const Tensor sum = weighted.dim() == 0 ? weighted : weighted.sum({dim}, true);
        g.give(0, weighted - (log ? result.exp() : result) * sum);
      } else {
        const View grad = detail::contiguous(g.output());
        const View& result = y.get(g);
        const Destination to = g.destination(0);
        kernels::launch(detail::context_of(result), kernels::SoftmaxGrad{.dtype = result.dtype,
                                                                         .log = log,
                                                                         .accumulate = to.accumulate,
                                                                         .outer = around.outer,
                                                                         .size = around.size,
                                                                         .inner = around.inner,
                                                                         .grad = grad.data(),
                                                                         .out = result.data(),
                                                                         .in_grad = to.view.data()});
      }
    };
  });
}

}  // namespace

Tensor Tensor::softmax(int dim) const { return run("softmax", *this, dim, false); }
Tensor Tensor::log_softmax(int dim) const { return run("log_softmax", *this, dim, true); }

}  // namespace tandem::inline v0

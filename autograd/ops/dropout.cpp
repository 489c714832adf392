#include <tandem/autograd/ops/common.h>
#include <tandem/autograd/spatial.h>
#include <tandem/kernels/dropout.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>

namespace tandem::inline v0 {

using namespace autograd;

Tensor dropout(const Tensor& x, double p, bool training) {
  check<ConfigError>(p >= 0 && p <= 1, "{}the probability must be between 0 and 1, got {} [TDM-E313]",
                     core::MessagePrefix{"dropout"}, p);
  check_floating("dropout", x);
  if (!training || p == 0) {
    return x;
  }
  const View in = detail::contiguous(x.raw());
  const std::int64_t count = in.numel();
  View out = detail::empty_view(in.sizes, in.dtype, in.device());
  const View mask = detail::empty_view(in.sizes, DType::u8, in.device());
  Generator& generator = current_generator();
  kernels::launch(detail::context_of(in),
                  kernels::Dropout{.dtype = in.dtype,
                                   .count = count,
                                   .p = p,
                                   .in = in.data(),
                                   .out = out.data(),
                                   .mask = static_cast<std::uint8_t*>(mask.data()),
                                   .seed = generator.seed(),
                                   .offset = generator.reserve(static_cast<std::uint64_t>((count + 3) / 4)),
                                   .state = generator.state()});
  return record("dropout", std::move(out), {&x}, [&] {
    return [mask = Saved(mask), p, count](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, g.output() * (g.constant(mask).to(g.output().dtype()) * (p < 1 ? 1 / (1 - p) : 0)));
      } else {
        const View grad = detail::contiguous(g.output());
        const Destination to = g.destination(0);
        kernels::launch(detail::context_of(grad),
                        kernels::DropoutGrad{.dtype = grad.dtype,
                                             .accumulate = to.accumulate,
                                             .count = count,
                                             .p = p,
                                             .grad = grad.data(),
                                             .mask = static_cast<const std::uint8_t*>(mask.get(g).data()),
                                             .in_grad = to.view.data()});
      }
    };
  });
}

Tensor dropout2d(const Tensor& x, double p, bool training) {
  check<ShapeError>(x.dim() >= 2, "{}the input must be [batch, channels, ...], got {}",
                    core::MessagePrefix{"dropout2d"}, x.shape());
  if (!training || p == 0) {
    return dropout(x, p, training);
  }
  Shape sizes = Shape::filled(x.dim(), 1);
  sizes[0] = x.size(0);
  sizes[1] = x.size(1);
  return x * dropout(ones(sizes, {.dtype = x.dtype(), .device = x.device()}), p);
}

}  // namespace tandem::inline v0

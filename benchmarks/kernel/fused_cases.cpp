#include <fmt/format.h>

#include <tandem/kernels/fused_update.h>

#include "kernel/case.h"

// Gradients of weights [out, in] together with the optimiser's step. The roofline knows no gradient in memory. Weights
// of `large` size are updated inside the product.

namespace bench::kernel {

namespace {

using namespace tandem::kernels;

struct WeightSizes {
  std::int64_t batch, in, out;
};

// make(product, weight, first, second, state) is the kernel; `kept` is the number of arrays that it changes besides the
// weight.
template <class Make>
Case fused_case(const WeightSizes& sizes, int kept, Make&& make) {
  const auto [batch, in, out] = sizes;
  Case made;
  Data& data = made.data;
  const void* grad_y = data.random(kF32, batch * out, 1e-2);
  const void* x = data.random(kF32, batch * in);
  void* gradient = data.zeros(kF32, out * in);
  void* weight = data.random(kF32, out * in);
  void* first = data.random(kF32, out * in, 1e-4);
  void* second = data.random(kF32, out * in, 1e-4, 1e-3);
  const Matmul product{.dtype = kF32,
                       .m = out,
                       .n = in,
                       .k = batch,
                       .a = {grad_y, 1, out},
                       .b = {x, in, 1},
                       .out = gradient,
                       .out_stride = in};
  const auto* state = data.keep(StepState{.learning_rate = 1e-4, .step = 100, .momentum = 0.9});
  made.run = launches(make(product, weight, first, second, state));
  made.passes = {{reads(grad_y, kF32, batch * out), reads(x, kF32, batch * in), updates(weight, kF32, out * in),
                  updates(first, kF32, out * in)}};
  if (kept > 1) {
    made.passes[0].push_back(updates(second, kF32, out * in));
  }
  made.flops = 2.0 * static_cast<double>(batch) * static_cast<double>(in) * static_cast<double>(out);
  return made;
}

MatmulSgd fused_sgd_of(const Matmul& product, void* weight, void* first, void*, const StepState* state) {
  return {.product = product,
          .update = {.dtype = kF32,
                     .count = product.m * product.n,
                     .param = weight,
                     .grad = product.out,
                     .momentum_buffer = first,
                     .state = state,
                     .dampening = 0,
                     .nesterov = false}};
}
MatmulAdam fused_adam_of(const Matmul& product, void* weight, void* first, void* second, const StepState* state) {
  return {.product = product,
          .update = {.dtype = kF32,
                     .count = product.m * product.n,
                     .param = weight,
                     .grad = product.out,
                     .exp_avg = first,
                     .exp_avg_sq = second,
                     .state = state,
                     .beta2 = 0.999,
                     .eps = 1e-8,
                     .decoupled = false}};
}

}  // namespace

void add_fused(Cases& cases) {
  const std::pair<Size, WeightSizes> all[] = {
      {Size::tiny, {3, 5, 4}}, {Size::small, {128, 784, 512}}, {Size::large, {256, 4096, 4096}}};
  for (const auto& [size, sizes] : all) {
    const std::string text = fmt::format("{}x{}x{}", sizes.batch, sizes.in, sizes.out);
    cases.add("fused_update", "sgd momentum " + text, {kF32},
              [sizes = sizes](DType, Size) { return fused_case(sizes, 1, fused_sgd_of); }, {size});
    cases.add("fused_update", "adam " + text, {kF32},
              [sizes = sizes](DType, Size) { return fused_case(sizes, 2, fused_adam_of); }, {size});
  }
}

}  // namespace bench::kernel

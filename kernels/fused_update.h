#pragma once

#include <tandem/kernels/launch.h>
#include <tandem/kernels/matmul.h>
#include <tandem/kernels/optimizer.h>

// A weight's gradient and the optimiser's step that uses it, in one pass: the step takes each strip of the gradient
// from the second-level cache. product.out is update.grad, m * n of update.count elements, and undefined afterwards.
// The bits are those of the two kernels one after the other, and so are the passes wherever fuses_update() is false.

namespace tandem::inline v0::kernels {

/// Whether this product takes an update along, and faster than two passes do: on a CPU with AVX2, in f32, plain, dense
/// and large. A weight that stays in a cache loses up to 12 % of a step.
TANDEM_API bool fuses_update(Device device, const Matmul& product);
/// The smallest number of weights that is large. For tests.
TANDEM_API void set_least_fused_update(std::int64_t count);
inline constexpr std::int64_t kLeastFusedUpdate = std::int64_t{1} << 20;
/// Whether a step takes long pieces of the weights' rows, which is better unless core::is_intel(). For tests.
TANDEM_API void set_long_update_rows(bool are_long);

struct MatmulSgd {
  static constexpr const char* kName = "matmul_sgd";
  Matmul product;
  Sgd update;
};
void run(OnCpu, Context& context, const MatmulSgd& kernel);
void run(OnCuda, Context& context, const MatmulSgd& kernel);

struct MatmulAdam {
  static constexpr const char* kName = "matmul_adam";
  Matmul product;
  Adam update;
};
void run(OnCpu, Context& context, const MatmulAdam& kernel);
void run(OnCuda, Context& context, const MatmulAdam& kernel);

/// Launches `update`, or, with a `product` of its gradients, both as one kernel, Fused.
template <class Fused, class Update>
void launch_update(Context& context, const Matmul* product, const Update& update) {
  if (product != nullptr) {
    launch(context, Fused{.product = *product, .update = update});
  } else {
    launch(context, update);
  }
}

}  // namespace tandem::inline v0::kernels

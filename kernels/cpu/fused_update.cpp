#include <tandem/kernels/fused_update.h>

#include <atomic>

#include <tandem/kernels/cpu/gemm.h>

namespace tandem::inline v0::kernels {

namespace {

std::atomic<std::int64_t> least{kLeastFusedUpdate};

std::atomic<bool>& long_rows() {
  static std::atomic<bool> are_long{!core::is_intel()};
  return are_long;
}

template <template <class, class> class Loop, class Kernel, class... Kept>
void multiply_and_update(Context& context, const Kernel& kernel, Kept*... kept) {
  const auto& step = kernel.update;
  if (fuses_update(context.device, kernel.product)) {
    const auto by = formula::update<float>(step, *step.state);
    if (!by.skip) {
      const Loop<float, float> loop{
          {static_cast<float*>(step.param), static_cast<const float*>(step.grad), nullptr, by},
          static_cast<float*>(kept)...};
      cpu::multiply_and_update(context, kernel.product,
                               cpu::TileUpdate(loop, long_rows().load(std::memory_order_relaxed)));
    }
    return;
  }
  run(OnCpu{}, context, kernel.product);
  run(OnCpu{}, context, step);
}

}  // namespace

void set_least_fused_update(std::int64_t count) { least.store(count, std::memory_order_relaxed); }

void set_long_update_rows(bool are_long) { long_rows().store(are_long, std::memory_order_relaxed); }

bool fuses_update(Device device, const Matmul& product) {
  const Epilogue& after = product.after;
  const bool plain = after.bias == nullptr && !after.relu && after.relu_mask == nullptr && after.relu_bits == nullptr &&
                     after.column_sums == nullptr && after.a_sums == nullptr;
  // Products of few rows, columns or samples are not made of tiles, and Eigen's take no update.
  constexpr std::int64_t kFew = 3;
  return device.type == DeviceType::cpu && core::isa() != core::Isa::baseline && product.dtype == DType::f32 && plain &&
         product.out_stride == product.n && product.b.col_stride == 1 && product.m > kFew && product.n > kFew &&
         product.k > kFew && product.m * product.n >= least.load(std::memory_order_relaxed);
}

void run(OnCpu, Context& context, const MatmulSgd& kernel) {
  multiply_and_update<cpu::SgdLoop>(context, kernel, kernel.update.momentum_buffer);
}

void run(OnCpu, Context& context, const MatmulAdam& kernel) {
  const Adam& step = kernel.update;
  multiply_and_update<cpu::AdamLoop>(context, kernel, step.exp_avg, step.exp_avg_sq, step.max_exp_avg_sq);
}

}  // namespace tandem::inline v0::kernels

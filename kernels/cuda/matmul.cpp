#include <tandem/kernels/matmul.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include <tandem/core/check.h>
#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/matmul/planner.h>
#include <tandem/kernels/cuda/matmul/small_product.h>
#include <tandem/kernels/matmul_tuning.h>

namespace tandem::inline v0::kernels {

namespace {

using gpu::Fused;
using gpu::PlanKey;
using gpu::Planner;
using gpu::ProductArguments;

// The distances between consecutive products of a batch, in elements.
struct Batch {
  std::int64_t count = 1;
  std::int64_t a_step = 0, b_step = 0, d_step = 0;
};

bool is_16_bit_type(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

// The library's ReLU turns NaN into 0 and would hide that a model is broken. Who asks for 16 bits or TF32 asks for
// speed, and sees NaN in the gradients; f32 and f64 are exact in this, too.
Fused wanted(const Matmul& product, bool tf32) {
  if (product.dtype == DType::f64) {
    return Fused::nothing;
  }
  const Epilogue& after = product.after;
  const bool fast = tf32 || is_16_bit_type(product.dtype);
  const bool only_backward = after.bias == nullptr && !after.relu;
  if (fast && only_backward && after.a_sums != nullptr && after.relu_mask == nullptr) {
    return Fused::a_sums;
  }
  if (only_backward && after.relu_mask_bits != nullptr && after.a_sums == nullptr) {
    return after.column_sums != nullptr ? Fused::mask_sums : Fused::mask;
  }
  const bool relu = after.relu && fast;
  if (relu && after.relu_bits != nullptr && after.relu_mask == nullptr) {
    return after.bias != nullptr ? Fused::relu_bits_bias : Fused::relu_bits;
  }
  return after.bias != nullptr ? (relu ? Fused::relu_bias : Fused::bias) : (relu ? Fused::relu : Fused::nothing);
}

ProductArguments arguments_of(const Matmul& product) {
  return {product.a.data, product.b.data, product.out, product.after};
}

PlanKey key_of(const Matmul& product, const Batch& batch, bool deterministic) {
  const bool tf32 = product.dtype == DType::f32 && get_float32_matmul_precision() != "highest";
  const auto transposed = [](const Matrix& matrix) { return matrix.col_stride != 1; };
  const auto leading = [&](const Matrix& matrix, std::int64_t rows, std::int64_t columns) {
    // A single row or column has any stride; cuBLASLt wants what dense memory would have.
    return transposed(matrix) ? std::max(matrix.col_stride, rows) : std::max(matrix.row_stride, columns);
  };
  PlanKey key{};
  key.m = product.m;
  key.n = product.n;
  key.k = product.k;
  key.lda = leading(product.a, product.m, product.k);
  key.ldb = leading(product.b, product.k, product.n);
  key.ldd = std::max(product.out_stride, product.n);
  key.batch = batch.count;
  key.a_step = batch.a_step;
  key.b_step = batch.b_step;
  key.d_step = batch.d_step;
  key.type = static_cast<std::int32_t>(product.dtype);
  key.a_transposed = transposed(product.a) ? 1 : 0;
  key.b_transposed = transposed(product.b) ? 1 : 0;
  key.fused = static_cast<std::int32_t>(wanted(product, tf32));
  key.accumulate = product.accumulate == Accumulate::yes ? 1 : 0;
  key.tf32 = tf32 ? 1 : 0;
  const auto bytes = static_cast<std::int64_t>(item_size(product.dtype));
  key.a_align = gpu::alignment_of(product.a.data, batch.a_step * bytes);
  key.b_align = gpu::alignment_of(product.b.data, batch.b_step * bytes);
  key.d_align = gpu::alignment_of(product.out, batch.d_step * bytes);
  key.bias_align = gpu::alignment_of(gpu::bias_or_sums(key, product.after));
  key.bits_align = gpu::alignment_of(gpu::bits_of(key, product.after));
  key.deterministic = deterministic ? 1 : 0;
  return gpu::with_fused(key, gpu::fused_of(key));
}

// The product by cuBLASLt, and whatever of its end the library does not do by kernels of ours.
void multiply_by_library(const Queue& queue, const Matmul& product, PlanKey key) {
  const ProductArguments arguments = arguments_of(product);
  Planner& planner = Planner::of(queue);
  bool started = planner.start(queue, key, arguments);
  while (!started && gpu::fused_of(key) != Fused::nothing) {
    key = gpu::simpler(key);
    started = planner.start(queue, key, arguments);
  }
  if (!started && key.tf32 != 0) {  // TF32 is an allowance, and f32 may be had where TF32 is not
    key.tf32 = 0;
    started = planner.start(queue, key, arguments);
  }
  check<DeviceError>(started, "matmul: cuBLASLt has no way to multiply [{}, {}] by [{}, {}] of {} on cuda:{}",
                     product.m, product.k, product.k, product.n, product.dtype, queue.gpu().index);
  gpu::finish_product(queue, gpu::rest_of(product, key), false);
}

Fused own_form(const Epilogue& after) {
  return after.relu_mask != nullptr            ? Fused::own_mask
         : after.bias != nullptr || after.relu ? Fused::own_forward
         : after.a_sums != nullptr             ? Fused::own_a_sums
                                               : Fused::own;
}

// Measures a small product by our own kernel and by the library. Their results go to scratch memory, but their sums to
// the product's own.
void compare(const Queue& queue, const Matmul& product, PlanKey by_library, const PlanKey& by_own) {
  Planner& planner = Planner::of(queue);
  const ProductArguments arguments = arguments_of(product);
  const gpu::Plan* plan = planner.find(queue, by_library, arguments);
  while (plan == nullptr && gpu::fused_of(by_library) != Fused::nothing) {
    by_library = gpu::simpler(by_library);
    plan = planner.find(queue, by_library, arguments);
  }
  const auto own = [&](const Queue& on, void* out) {
    Matmul there = product;
    there.out = out;
    gpu::start_small_product(on, there);
    return true;
  };
  planner.compare_own(queue, by_own, product, own, by_library, plan);
}

void multiply(const Queue& queue, const Matmul& product, const Batch& batch, bool deterministic) {
  const PlanKey key = key_of(product, batch, deterministic);
  if (batch.count > 1 || !gpu::is_small_product(product)) {
    return multiply_by_library(queue, product, key);
  }
  Planner& planner = Planner::of(queue);
  const PlanKey own = gpu::with_fused(key, own_form(product.after));
  std::optional<bool> prefers_own = planner.prefers_own(queue, own);
  if (!prefers_own) {
    compare(queue, product, key, own);
    prefers_own = planner.prefers_own(queue, own);
  }
  if (prefers_own.value_or(true)) {
    gpu::start_small_product(queue, product);
  } else {
    multiply_by_library(queue, product, key);
  }
}

void multiply_or_clear(const Queue& queue, const Matmul& product, const Batch& batch, bool deterministic) {
  if (product.m == 0 || product.n == 0 || product.k == 0) {
    gpu::finish_product(queue, product, true);
    return;
  }
  multiply(queue, product, batch, deterministic);
}

}  // namespace

void run(OnCuda, Context& context, const Matmul& kernel) {
  const Queue queue(context);
  multiply_or_clear(queue, kernel, {}, context.deterministic);
}

// The innermost dimension of the batch goes to the library as one product, the others are walked here.
void run(OnCuda, Context& context, const BatchedMatmul& kernel) {
  const Queue queue(context);
  const auto bytes = static_cast<std::int64_t>(item_size(kernel.matrix.dtype));
  const int last = kernel.batch.ndim - 1;
  const bool plain = kernel.matrix.after.bias == nullptr && !kernel.matrix.after.relu && kernel.matrix.k > 0;
  const bool together = plain && kernel.batch.sizes[last] <= INT32_MAX;
  Loop outer = kernel.batch;
  Batch batch;
  if (together) {
    outer.ndim = last;
    batch = {kernel.batch.sizes[last], kernel.a.strides[last], kernel.b.strides[last], kernel.out.strides[last]};
  }
  const auto moved = [&](const Operand& operand, const void* first, std::int64_t position) {
    const std::int64_t offset = offset_at(outer, operand.strides, position);
    return static_cast<std::byte*>(const_cast<void*>(first)) + offset * bytes;
  };
  const std::int64_t count = outer.numel();
  for (std::int64_t position = 0; position < count; ++position) {
    Matmul one = kernel.matrix;
    one.a.data = moved(kernel.a, one.a.data, position);
    one.b.data = moved(kernel.b, one.b.data, position);
    one.out = moved(kernel.out, one.out, position);
    multiply_or_clear(queue, one, batch, context.deterministic);
  }
}

}  // namespace tandem::inline v0::kernels

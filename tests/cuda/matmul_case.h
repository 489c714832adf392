#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/cuda/matmul/plan_store.h>
#include <tandem/kernels/cuda/matmul/planner.h>
#include <tandem/kernels/matmul.h>
#include <tandem/kernels/matmul_tuning.h>

#include "cuda/device_array.h"
#include "support/temp_dir.h"

// Helpers shared by tests of measured matrix products.

namespace tandem::kernels {

using gpu::Fused;
using gpu::PlanKey;
using gpu::PlanRecord;
using test::DeviceArray;

inline std::vector<float> numbers(std::int64_t count, int seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>((i * 37 + static_cast<std::size_t>(seed) * 11) % 17) - 8);
  }
  return values;
}

/// Small whole numbers: every order of summation gives the same result.
struct Product {
  explicit Product(std::int64_t m_, std::int64_t n_, std::int64_t k_) : m(m_), n(n_), k(k_) {}

  Matmul on(const float* a, const float* b, const float* bias, float* out) const {
    Matmul product{};
    product.dtype = DType::f32;
    product.accumulate = accumulate ? Accumulate::yes : Accumulate::no;
    product.after.relu = relu;
    product.m = m;
    product.n = n;
    product.k = k;
    product.a = {a, k, 1};
    product.b = {b, n, 1};
    product.out = out;
    product.out_stride = stride();
    product.after.bias = with_bias ? bias : nullptr;
    return product;
  }
  std::int64_t stride() const { return n + gap; }
  PlanKey key(Fused fused) const {
    PlanKey key{};
    key.m = m;
    key.n = n;
    key.k = k;
    key.lda = k;
    key.ldb = n;
    key.ldd = stride();
    key.batch = 1;
    key.type = static_cast<std::int32_t>(DType::f32);
    key.fused = static_cast<std::int32_t>(fused);
    key.accumulate = accumulate ? 1 : 0;
    key.a_align = key.b_align = key.d_align = key.bias_align = key.bits_align = 256;
    key.deterministic = 1;
    return key;
  }

  std::int64_t m, n, k;
  std::int64_t gap = 0;
  bool accumulate = false;
  bool relu = false;
  bool with_bias = false;
};

/// A product's operands in the GPU's memory, and the CPU's result.
struct Case {
  explicit Case(const Product& p)
      : product(p),
        host_a(numbers(p.m * p.k, 1)),
        host_b(numbers(p.k * p.n, 2)),
        host_bias(numbers(p.n, 3)),
        before(numbers(p.m * p.stride(), 4)),
        a(host_a),
        b(host_b),
        bias(host_bias),
        out(before) {}

  std::vector<float> expected() const {
    std::vector<float> result = before;
    launch(context_for(Device("cpu")), product.on(host_a.data(), host_b.data(), host_bias.data(), result.data()));
    return result;
  }
  void run() { launch(test::gpu(), product.on(a.data(), b.data(), bias.data(), out.data())); }
  gpu::ProductArguments arguments() { return {a.data(), b.data(), out.data(), {.bias = bias.data()}}; }

  Product product;
  std::vector<float> host_a, host_b, host_bias, before;
  DeviceArray<float> a, b, bias, out;
};

/// All choices of this process.
inline std::vector<PlanRecord> records() {
  const test::TempDir dir;
  cuda::save_matmul_plans(dir.file("plans"));
  return gpu::parse_plans(test::read_text(dir.file("plans")), "plans");
}

inline std::optional<PlanRecord> record_of(const PlanKey& key) {
  for (const PlanRecord& record : records()) {
    if (record.key == key) return record;
  }
  return std::nullopt;
}

/// Each test uses shapes of its own, because choices last for the whole process.
class MatmulTuning : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_NEEDS_GPU();
    cuda::set_kernel_tuning(true);
    cuda::set_small_products(false);  // the library computes all
  }
  void TearDown() override {
    cuda::set_kernel_tuning(false);
    cuda::set_small_products(true);
  }
};

}  // namespace tandem::kernels

#if __has_include("emulated_gpu.h")

#include <cstdint>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "cuda/matmul_case.h"
#include "emulated_gpu.h"

// Products whose algorithms the library refuses, when it is asked or only when it is called.

namespace tandem::kernels {
namespace {

class HostileLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_NEEDS_GPU();
    cuda::set_small_products(false);
  }
  void TearDown() override {
    cuda::set_small_products(true);
    emulated_gpu::be_hostile(0);
    emulated_gpu::refuse_calls("");
    set_float32_matmul_precision("highest");
    cuda::set_kernel_tuning(false);
  }
  // Sizes that no other test has: choices last for the whole process.
  static Case next_case() {
    static std::int64_t count = 0;
    Product product(5, 601 + ++count, 33);
    product.with_bias = count % 3 != 0;
    product.relu = count % 2 != 0;
    product.accumulate = count % 5 == 0;
    return Case(product);
  }
};

TEST_F(HostileLibrary, CannotKeepAProductFromBeingComputed) {
  for (const bool tf32 : {false, true}) {
    set_float32_matmul_precision(tf32 ? "high" : "highest");
    for (const bool tuning : {false, true}) {
      cuda::set_kernel_tuning(tuning);
      for (std::uint64_t seed = 1; seed <= (tuning ? 2u : 40u); ++seed) {
        emulated_gpu::be_hostile(seed);
        Case one = next_case();
        one.run();
        ASSERT_EQ(one.out.download(), one.expected()) << "seed " << seed << ", " << one.product.n << " columns";
        Case again(one.product);  // now choices are known
        again.run();
        ASSERT_EQ(again.out.download(), again.expected()) << "seed " << seed << ", " << one.product.n << " columns";
      }
    }
  }
}

TEST_F(HostileLibrary, ThatRefusesAPlainProductIsNamedWithTheSizes) {
  for (const char* call : {"cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"}) {
    emulated_gpu::refuse_calls(call);
    Case one = next_case();
    try {
      one.run();
      FAIL() << "nothing was thrown";
    } catch (const DeviceError& error) {
      EXPECT_EQ(
          error.what(),
          fmt::format("matmul: cuBLASLt has no way to multiply [5, 33] by [33, {}] of f32 on cuda:0", one.product.n));
    }
  }
}

TEST_F(HostileLibrary, IsNotNeededForSmallProducts) {
  cuda::set_small_products(true);
  for (const char* call : {"cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"}) {
    for (const bool tuning : {false, true}) {
      emulated_gpu::refuse_calls(call);
      cuda::set_kernel_tuning(tuning);
      Case one = next_case();
      one.run();
      EXPECT_EQ(one.out.download(), one.expected()) << call << ", tuning " << tuning;
    }
  }
}

}  // namespace
}  // namespace tandem::kernels

#endif

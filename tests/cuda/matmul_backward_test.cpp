#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/kernels/matmul.h>
#include <tandem/kernels/matmul_tuning.h>

#include "cuda/device_array.h"
#include "cuda/matmul_case.h"

// Tests of the extra results that a product provides for a backward pass: a ReLU's bits, a mask made of them, sums. The
// library computes some of them, and tandem's own kernels the rest. Both must equal the CPU's.

namespace tandem::kernels {
namespace {

struct Sizes {
  std::int64_t m, n, k;
};

// A row of bits covers 128 columns. For a k of 1 and for a single row the library fuses nothing.
const Sizes kSizes[] = {{1, 1, 1},    {1, 127, 5},  {3, 128, 7}, {33, 129, 4}, {17, 7, 20},
                        {2, 200, 30}, {40, 16, 16}, {5, 300, 1}, {1, 64, 9},   {30, 1, 8}};

// Numbers few and small enough for their sums to be exact in 16 bits.
template <class T>
std::vector<T> small_numbers(std::int64_t count, int seed) {
  std::vector<T> values;
  for (const float number : numbers(count, seed)) {
    values.push_back(T(static_cast<float>(static_cast<int>(number) % 2)));
  }
  return values;
}

struct Fast {
  Fast() { set_float32_matmul_precision("high"); }
  ~Fast() { set_float32_matmul_precision("highest"); }
};

template <class T>
class MatmulForBackward : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_NEEDS_GPU(); }
};
using Types = ::testing::Types<float, double, BFloat16, Float16>;
TYPED_TEST_SUITE(MatmulForBackward, Types);

// The meaningful bits, each as one number.
std::vector<int> unpacked(const std::vector<std::uint8_t>& bits, std::int64_t rows, std::int64_t columns) {
  std::vector<int> all;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      all.push_back(bits[static_cast<std::size_t>(i * relu_bits_stride(columns) + j / 8)] >> (j % 8) & 1);
    }
  }
  return all;
}

// A product on both devices, which must write the same.
template <class T>
struct Both {
  Both(const Sizes& sizes, bool a_by_columns, std::int64_t gap)
      : product{},
        stride(sizes.n + gap),
        a(small_numbers<T>(sizes.m * sizes.k, 1)),
        b(small_numbers<T>(sizes.k * sizes.n, 2)),
        bias(small_numbers<T>(sizes.n, 3)),
        out(small_numbers<T>(sizes.m * stride, 4)),
        mask(small_numbers<T>(sizes.m * stride, 5)),
        sums(static_cast<std::size_t>(sizes.m + sizes.n), T(7.0f)),
        bits(static_cast<std::size_t>(sizes.m * relu_bits_stride(sizes.n)), std::uint8_t{0xA5}) {
    product.dtype = dtype_of<T>;
    product.m = sizes.m;
    product.n = sizes.n;
    product.k = sizes.k;
    product.a = a_by_columns ? Matrix{nullptr, 1, sizes.m} : Matrix{nullptr, sizes.k, 1};
    product.b = {nullptr, sizes.n, 1};
    product.out_stride = stride;
  }

  // Packs the mask into bits as well.
  void pack_mask() {
    bits.assign(bits.size(), 0);
    for (std::int64_t i = 0; i < product.m; ++i) {
      for (std::int64_t j = 0; j < product.n; ++j) {
        const bool on = !relu_is_off(static_cast<double>(mask[static_cast<std::size_t>(i * stride + j)]));
        std::uint8_t& byte = bits[static_cast<std::size_t>(i * relu_bits_stride(product.n) + j / 8)];
        byte = static_cast<std::uint8_t>(byte | (on ? 1 << j % 8 : 0));
      }
    }
  }

  template <class Change>
  void expect_alike(Change change) {
    const DeviceArray<T> gpu_a(a), gpu_b(b), gpu_bias(bias), gpu_mask(mask);
    const DeviceArray<T> gpu_out(out), gpu_sums(sums);
    const DeviceArray<std::uint8_t> gpu_bits(bits);
    const auto run = [&](Context& context, const T* a_at, const T* b_at, const T* bias_at, const T* mask_at, T* out_at,
                         T* sums_at, std::uint8_t* bits_at) {
      Matmul one = product;
      one.a.data = a_at;
      one.b.data = b_at;
      one.out = out_at;
      change(one, bias_at, mask_at, sums_at, bits_at);
      launch(context, one);
    };
    run(test::gpu(), gpu_a.data(), gpu_b.data(), gpu_bias.data(), gpu_mask.data(), gpu_out.data(), gpu_sums.data(),
        gpu_bits.data());
    std::vector<T> cpu_out = out, cpu_sums = sums;
    std::vector<std::uint8_t> cpu_bits = bits;
    run(context_for(Device("cpu")), a.data(), b.data(), bias.data(), mask.data(), cpu_out.data(), cpu_sums.data(),
        cpu_bits.data());
    EXPECT_EQ(gpu_out.download(), cpu_out);
    EXPECT_EQ(gpu_sums.download(), cpu_sums);
    EXPECT_EQ(unpacked(gpu_bits.download(), product.m, product.n), unpacked(cpu_bits, product.m, product.n));
  }

  Matmul product;
  std::int64_t stride;
  std::vector<T> a, b, bias, out, mask, sums;
  std::vector<std::uint8_t> bits;
};

std::string named(const Sizes& sizes) { return fmt::format("{} x {} x {}", sizes.m, sizes.n, sizes.k); }

TYPED_TEST(MatmulForBackward, WritesTheBitsOfARelu) {
  const Fast fast;
  for (const Sizes& sizes : kSizes) {
    for (const bool with_bias : {false, true}) {
      SCOPED_TRACE(named(sizes));
      Both<TypeParam>(sizes, false, with_bias ? 3 : 0)
          .expect_alike([&](Matmul& one, const void* bias, const void*, void*, void* bits) {
            one.after.relu = true;
            one.after.bias = with_bias ? bias : nullptr;
            one.after.relu_bits = bits;
          });
    }
  }
}

TYPED_TEST(MatmulForBackward, MasksByBitsAndSumsColumns) {
  const Fast fast;
  for (const Sizes& sizes : kSizes) {
    for (const bool with_sums : {false, true}) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        SCOPED_TRACE(named(sizes));
        Both<TypeParam> both(sizes, false, with_sums ? 0 : 5);
        both.pack_mask();
        both.expect_alike([&](Matmul& one, const void*, const void* mask, void* sums, const void* as_bits) {
          one.accumulate = accumulate;
          one.after.relu_mask = mask;
          one.after.relu_mask_bits = as_bits;
          one.after.column_sums = with_sums ? sums : nullptr;
        });
      }
    }
  }
}

// Masks and sums of tandem's own kernel, which makes them of many rows in parts.
TYPED_TEST(MatmulForBackward, MasksAndSumsColumnsOfManyRowsAndOfFew) {
  cuda::set_small_products(false);
  for (const Sizes& sizes : {Sizes{3001, 3, 2}, {5000, 1, 2}, {1, 300, 4}, {1, 1, 3}, {700, 40, 3}}) {
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
      for (const std::int64_t gap : {0, 5}) {
        SCOPED_TRACE(named(sizes));
        Both<TypeParam> both(sizes, false, gap);
        both.expect_alike([&](Matmul& one, const void*, const void* mask, void* sums, const void*) {
          one.accumulate = accumulate;
          one.after.relu_mask = mask;
          one.after.column_sums = sums;
        });
      }
    }
  }
  cuda::set_small_products(true);
}

// The gradient passes a NaN like in PyTorch's threshold_backward, whichever code applies the mask.
TYPED_TEST(MatmulForBackward, NotANumberInAMaskLetsTheGradientThrough) {
  const Fast fast;
  for (const Sizes& sizes : kSizes) {
    for (const bool by_bits : {false, true}) {
      SCOPED_TRACE(named(sizes));
      Both<TypeParam> both(sizes, false, 3);
      for (std::size_t i = 0; i < both.mask.size(); i += 3) {
        both.mask[i] = std::numeric_limits<TypeParam>::quiet_NaN();
      }
      std::fill(both.a.begin(), both.a.end(), TypeParam(1.0F));
      std::fill(both.b.begin(), both.b.end(), TypeParam(1.0F));
      both.pack_mask();
      both.expect_alike([&](Matmul& one, const void*, const void* mask, void*, const void* as_bits) {
        one.after.relu_mask = mask;
        one.after.relu_mask_bits = by_bits ? as_bits : nullptr;
      });
    }
  }
}

// f32 and f64 only, whose ReLU is tandem's own; the library's turns NaN into 0.
TEST(MatmulForBackwardExactly, BitsOfNotANumberAreSet) {
  TANDEM_NEEDS_GPU();
  const auto expect = [&]<class T>(const Sizes& sizes) {
    SCOPED_TRACE(named(sizes));
    Both<T> both(sizes, false, 0);
    std::fill(both.a.begin(), both.a.end(), std::numeric_limits<T>::quiet_NaN());
    const DeviceArray<T> a(both.a), b(both.b), out(both.out);
    const DeviceArray<std::uint8_t> bits(both.bits);
    Matmul one = both.product;
    one.a.data = a.data();
    one.b.data = b.data();
    one.out = out.data();
    one.after.relu = true;
    one.after.relu_bits = bits.data();
    launch(test::gpu(), one);
    const std::vector<int> got = unpacked(bits.download(), sizes.m, sizes.n);
    EXPECT_EQ(got, std::vector<int>(got.size(), 1));
  };
  for (const Sizes& sizes : kSizes) {
    expect.operator()<float>(sizes);
    expect.operator()<double>(sizes);
  }
}

TYPED_TEST(MatmulForBackward, SumsTheLeftFactor) {
  const Fast fast;
  for (const Sizes& sizes : kSizes) {
    for (const bool by_columns : {false, true}) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        SCOPED_TRACE(named(sizes));
        Both<TypeParam>(sizes, by_columns, 0)
            .expect_alike([&](Matmul& one, const void*, const void*, void* sums, void*) {
              one.accumulate = accumulate;
              one.after.a_sums = sums;
            });
      }
    }
  }
}

// Requests all extra results at once.
TYPED_TEST(MatmulForBackward, AllAtOnce) {
  for (const Sizes& sizes : kSizes) {
    SCOPED_TRACE(named(sizes));
    const std::int64_t n = sizes.n;
    Both<TypeParam>(sizes, false, 1)
        .expect_alike([&](Matmul& one, const void* bias, const void* mask, void* sums, void* bits) {
          one.after.relu = true;
          one.after.bias = bias;
          one.after.relu_mask = mask;
          one.after.relu_bits = bits;
          one.after.column_sums = sums;
          one.after.a_sums = static_cast<TypeParam*>(sums) + n;
        });
  }
}

TYPED_TEST(MatmulForBackward, SumsOfNothingAreZero) {
  for (const Sizes& sizes : {Sizes{0, 5, 3}, Sizes{4, 0, 3}, Sizes{4, 5, 0}, Sizes{0, 0, 0}}) {
    SCOPED_TRACE(named(sizes));
    const std::int64_t n = sizes.n;
    Both<TypeParam>(sizes, false, 0).expect_alike([&](Matmul& one, const void*, const void*, void* sums, void*) {
      one.after.column_sums = sums;
      one.after.a_sums = static_cast<TypeParam*>(sums) + n;
    });
  }
}

// Sums of a GPU library are made of parts. Whatever order these arrive in, the bits must be those of the first run.
TYPED_TEST(MatmulForBackward, GivesTheSameBitsEachTime) {
  const Fast fast;
  const Sizes sizes{300, 130, 40};
  Both<TypeParam> both(sizes, false, 0);
  std::vector<TypeParam> a;
  for (const float number : numbers(sizes.m * sizes.k, 6)) {
    a.push_back(TypeParam(number / 7));
  }
  const DeviceArray<TypeParam> gpu_a(a), gpu_b(both.b), gpu_out(both.out), gpu_mask(both.mask), gpu_sums(both.sums);
  const DeviceArray<std::uint8_t> gpu_bits(both.bits);
  Matmul one = both.product;
  one.a.data = gpu_a.data();
  one.b.data = gpu_b.data();
  one.out = gpu_out.data();
  one.after.relu_mask = gpu_mask.data();
  one.after.relu_mask_bits = gpu_bits.data();
  one.after.column_sums = gpu_sums.data();
  launch(test::gpu(), one);
  const std::vector<TypeParam> first = gpu_sums.download();
  for (int i = 0; i < 10; ++i) {
    launch(test::gpu(), one);
    EXPECT_EQ(gpu_sums.download(), first);
  }
}

// ---- choice of the implementation ----

// Checks the choice for a product with extra results, and its kernels.
TEST_F(MatmulTuning, MeasuresWhatABackwardPassAsksFor) {
  using gpu::Planner;
  const Queue queue(test::gpu());
  for (const Fused fused : {Fused::relu_bits_bias, Fused::mask_sums, Fused::a_sums}) {
    Case one(Product(26, 34, 40 + static_cast<std::int64_t>(fused)));
    const DeviceArray<float> sums(std::vector<float>(64));
    const DeviceArray<std::uint8_t> bits(std::vector<std::uint8_t>(26 * 16));
    gpu::ProductArguments arguments = one.arguments();
    arguments.after = {.bias = one.bias.data(),
                       .relu_mask = one.out.data(),
                       .relu_mask_bits = bits.data(),
                       .relu_bits = bits.data(),
                       .column_sums = sums.data(),
                       .a_sums = sums.data()};
    const PlanKey key = gpu::with_fused(one.product.key(fused), fused);
    const gpu::Plan* plan = Planner::of(queue).find(queue, key, arguments);
    const auto chosen = record_of(key);
    const auto next = record_of(gpu::simpler(key));
    const auto alone = record_of(gpu::plain(key));
    ASSERT_TRUE(chosen && next && alone) << static_cast<int>(fused);
    EXPECT_EQ(plan == nullptr, chosen->separate);
    if (chosen->separate) {
      EXPECT_GT(chosen->kernels, 1);
    }
    EXPECT_EQ(one.out.download(), one.before);
  }
}

TEST_F(MatmulTuning, MayFindThatAMaskIsFusedAndItsSumsAreNot) {
  using gpu::Planner;
  cuda::set_kernel_tuning(false);
  const PlanKey key = gpu::with_fused(Product(18, 40, 51).key(Fused::mask_sums), Fused::mask_sums);
  const PlanRecord known{.key = key,
                         .version = cublasLtGetVersion(),
                         .separate = true,
                         .kernels = 2,
                         .time_us = 1.5,
                         .gpu = cuda::device_name(0)};
  const test::TempDir dir;
  EXPECT_EQ(cuda::load_matmul_plans(dir.write("plans", gpu::write_plans(std::vector{known}))).loaded, 1u);
  Both<float> both({18, 40, 51}, false, 0);
  both.pack_mask();
  both.expect_alike([&](Matmul& one, const void*, const void* mask, void* sums, const void* bits) {
    one.after.relu_mask = mask;
    one.after.relu_mask_bits = bits;
    one.after.column_sums = sums;
  });
  const Queue queue(test::gpu());
  const DeviceArray<float> memory(numbers(4096, 1));
  EXPECT_EQ(Planner::of(queue).find(queue, key, {memory.data(), memory.data(), memory.data()}), nullptr);
  EXPECT_NE(Planner::of(queue).find(queue, gpu::simpler(key), {memory.data(), memory.data(), memory.data()}), nullptr);
}

TEST(MatmulForBackwardPlans, TheLibraryFusesUnlessThereIsOneOfSomething) {
  TANDEM_NEEDS_GPU();
  using gpu::Planner;
  const Queue queue(test::gpu());
  const DeviceArray<float> memory(numbers(4096, 1));
  const gpu::ProductArguments arguments{memory.data(), memory.data(), memory.data()};
  const auto fuses = [&](Fused fused, std::int64_t m, std::int64_t n, std::int64_t k) {
    return Planner::of(queue).find(queue, gpu::with_fused(Product(m, n, k).key(fused), fused), arguments) != nullptr;
  };
  for (const Fused fused : {Fused::relu_bits, Fused::relu_bits_bias, Fused::mask, Fused::mask_sums, Fused::a_sums}) {
    EXPECT_TRUE(fuses(fused, 16, 16, 16)) << static_cast<int>(fused);
  }
  if (cuda::device_name(0).find("Emulated") != std::string::npos) {
    EXPECT_FALSE(fuses(Fused::mask, 16, 16, 1));
    EXPECT_FALSE(fuses(Fused::mask_sums, 16, 16, 1));
    EXPECT_FALSE(fuses(Fused::a_sums, 1, 16, 16));
  }
}

}  // namespace
}  // namespace tandem::kernels

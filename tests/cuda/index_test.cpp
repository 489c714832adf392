#include <cstdint>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/kernels/index.h>

#include "cuda/indices.h"

namespace tandem::kernels {
namespace {

using test::Rng;
using test::Twin;

TEST(CudaIndexSelect, RowsOfAnySize) {
  TANDEM_NEEDS_GPU();
  Rng rng(19);
  for (const std::int64_t outer : {0, 1, 3}) {
    for (const std::int64_t inner_bytes : {0, 1, 2, 3, 4, 8, 12, 16, 48, 100, 4096}) {
      for (const std::int64_t count : {0, 1, 2, 37}) {
        for (const std::int64_t offset : {0, 1, 8}) {
          constexpr std::int64_t kSize = 11;
          Twin<std::uint8_t> in(rng, outer * kSize * inner_bytes + offset, 0, 255);
          Twin<std::uint8_t> out(rng, outer * count * inner_bytes + offset);
          Twin<std::int64_t> index(test::random_index(rng, count, kSize));
          IndexSelect kernel{.out = out.on_host(offset),
                             .in = in.on_host(offset),
                             .index = index.on_host(),
                             .outer = outer,
                             .size = kSize,
                             .count = count,
                             .inner_bytes = inner_bytes};
          launch(test::cpu(), kernel);
          kernel.out = out.on_gpu(offset);
          kernel.in = in.on_gpu(offset);
          kernel.index = index.on_gpu();
          launch(test::gpu(), kernel);
          ASSERT_TRUE(out.agree()) << outer << " " << inner_bytes << " " << count << " " << offset;
        }
      }
    }
  }
}

TEST(CudaIndexSelect, ReportsAnIndexOutOfRange) {
  TANDEM_NEEDS_GPU();
  Twin<float> in(std::vector<float>{1, 2, 3, 4, 5, 6});
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{3}, INT64_MIN, INT64_MAX}) {
    Twin<float> out(std::vector<float>(8, 9));
    Twin<std::int64_t> index(std::vector<std::int64_t>{2, bad, 0, 1});
    launch(test::gpu(), IndexSelect{.out = out.on_gpu(),
                                    .in = in.on_gpu(),
                                    .index = index.on_gpu(),
                                    .outer = 1,
                                    .size = 3,
                                    .count = 4,
                                    .inner_bytes = 8,
                                    .op = "embedding"});
    EXPECT_THAT(test::message_of_gpu(),
                testing::HasSubstr(fmt::format("embedding: index {} at position 1 is outside [0, 3)", bad)));
    EXPECT_EQ(out.download(), (std::vector<float>{5, 6, 0, 0, 1, 2, 3, 4}));
  }
}

template <class T>
void compare_index_add(Rng& rng, IndexAdd kernel, std::int64_t offset) {
  Twin<T> in(rng, kernel.outer * kernel.count * kernel.inner + offset, 0, 3);
  Twin<T> out(rng, kernel.outer * kernel.size * kernel.inner + offset, 0, 3);
  Twin<std::int64_t> index(test::skewed_index(rng, kernel.count, kernel.size));
  kernel.out = out.on_host(offset);
  kernel.in = in.on_host(offset);
  kernel.index = index.on_host();
  launch(test::cpu(), kernel);
  kernel.out = out.on_gpu(offset);
  kernel.in = in.on_gpu(offset);
  kernel.index = index.on_gpu();
  launch(test::gpu(), kernel);
  ASSERT_TRUE(out.agree()) << fmt::format("outer {} size {} count {} inner {}", kernel.outer, kernel.size, kernel.count,
                                          kernel.inner);
}

template <class T>
class CudaIndexAddOf : public testing::Test {};
using Types = testing::Types<float, double, BFloat16, Float16, std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(CudaIndexAddOf, Types);

TYPED_TEST(CudaIndexAddOf, HasTheBitsOfTheCpu) {
  TANDEM_NEEDS_GPU();
  Rng rng(29);
  for (const auto& [outer, size, count, inner] : std::vector<std::tuple<int, int, int, int>>{{1, 1, 1, 1},
                                                                                             {0, 3, 2, 1},
                                                                                             {1, 3, 0, 1},
                                                                                             {2, 3, 4, 0},
                                                                                             {3, 7, 33, 5},
                                                                                             {2, 5, 64, 64},
                                                                                             {1, 300, 300, 300},
                                                                                             {1, 5, 2048, 1},
                                                                                             {1, 5, 2049, 1},
                                                                                             {2, 700, 3000, 3},
                                                                                             {1, 70000, 5000, 4},
                                                                                             {2, 3, 2500, 72}}) {
    for (const std::int64_t offset : {0, 1}) {
      compare_index_add<TypeParam>(rng,
                                   {.dtype = dtype_of<TypeParam>,
                                    .out = nullptr,
                                    .in = nullptr,
                                    .index = nullptr,
                                    .outer = outer,
                                    .size = size,
                                    .count = count,
                                    .inner = inner,
                                    .skip = size > 2 ? 2 : -1},
                                   offset);
    }
  }
}

TEST(CudaIndexAdd, ReportsAnIndexOutOfRange) {
  TANDEM_NEEDS_GPU();
  for (const std::int64_t count : {5, 4000}) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(count), 1);
    indices[3] = 2;
    Twin<std::int64_t> index(indices);
    Twin<float> in(std::vector<float>(static_cast<std::size_t>(count), 1));
    Twin<float> out(std::vector<float>{0, 0, 7});
    launch(test::gpu(), IndexAdd{.dtype = DType::f32,
                                 .out = out.on_gpu(),
                                 .in = in.on_gpu(),
                                 .index = index.on_gpu(),
                                 .outer = 1,
                                 .size = 2,
                                 .count = count,
                                 .inner = 1,
                                 .skip = 0,
                                 .op = "index_select"});
    EXPECT_THAT(test::message_of_gpu(), testing::HasSubstr("index_select: index 2 at position 3 is outside [0, 2)"));
    EXPECT_EQ(out.download(), (std::vector<float>{0, static_cast<float>(count - 1), 7}));
  }
}

}  // namespace
}  // namespace tandem::kernels

#include <cstdint>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/kernels/gather.h>

#include "cuda/indices.h"

namespace tandem::kernels {
namespace {

using test::Rng;
using test::Twin;

// Gathers along the middle of in [outer, size, inner]. The index and the result are [outer, count, inner].
template <class T>
void compare_gather(Rng& rng, std::int64_t outer, std::int64_t size, std::int64_t count, std::int64_t inner,
                    std::int64_t offset) {
  Twin<T> in(rng, outer * size * inner + offset);
  Twin<T> out(rng, outer * count * inner + offset);
  Twin<std::int64_t> index(test::random_index(rng, outer * count * inner, size));
  Gather kernel{.item_size = sizeof(T),
                .dim_stride = inner,
                .dim_size = size,
                .loop = test::loop_of({outer, count, inner}),
                .out = {out.on_host(offset), {count * inner, inner, 1}},
                .index = {index.on_host(), {count * inner, inner, 1}},
                .in = {in.on_host(offset), {size * inner, 0, 1}}};
  simplify(kernel.loop, {&kernel.out, &kernel.index, &kernel.in});
  launch(test::cpu(), kernel);
  kernel.out.data = out.on_gpu(offset);
  kernel.index.data = index.on_gpu();
  kernel.in.data = in.on_gpu(offset);
  launch(test::gpu(), kernel);
  ASSERT_TRUE(out.agree()) << outer << " " << count << " " << inner;
}

TEST(CudaGather, AlongEveryDimension) {
  TANDEM_NEEDS_GPU();
  Rng rng(23);
  for (const std::int64_t outer : {0, 1, 5}) {
    for (const std::int64_t count : {0, 1, 4, 7}) {
      for (const std::int64_t inner : {1, 3, 64}) {
        for (const std::int64_t offset : {0, 1}) {
          compare_gather<float>(rng, outer, 9, count, inner, offset);
          compare_gather<double>(rng, outer, 9, count, inner, offset);
          compare_gather<Float16>(rng, outer, 9, count, inner, offset);
          compare_gather<bool>(rng, outer, 9, count, inner, offset);
        }
      }
    }
  }
}

TEST(CudaGather, ReportsAnIndexOutOfRange) {
  TANDEM_NEEDS_GPU();
  Twin<float> in(std::vector<float>{1, 2, 3});
  Twin<float> out(std::vector<float>(4, 9));
  Twin<std::int64_t> index(std::vector<std::int64_t>{2, 0, 3, 1});
  launch(test::gpu(), Gather{.item_size = 4,
                             .dim_stride = 1,
                             .dim_size = 3,
                             .op = "gather",
                             .loop = test::loop_of({4}),
                             .out = {out.on_gpu(), {1}},
                             .index = {index.on_gpu(), {1}},
                             .in = {in.on_gpu(), {0}}});
  EXPECT_THAT(test::message_of_gpu(), testing::HasSubstr("gather: index 3 at position 2 is outside [0, 3)"));
  EXPECT_EQ(out.download(), (std::vector<float>{3, 1, 0, 2}));
}

// Adds along the middle of out [outer, size, inner]. The index and the input are [outer, count, inner].
template <class T>
void compare_scatter_add(Rng& rng, std::int64_t outer, std::int64_t size, std::int64_t count, std::int64_t inner) {
  Twin<T> in(rng, outer * count * inner, 0, 3);
  Twin<T> out(rng, outer * size * inner, 0, 3);
  Twin<std::int64_t> index(test::skewed_index(rng, outer * count * inner, size));
  ScatterAdd kernel{.dtype = dtype_of<T>,
                    .dim_stride = inner,
                    .dim_size = size,
                    .loop = test::loop_of({outer, inner, count}),
                    .out = {out.on_host(), {size * inner, 1, 0}},
                    .index = {index.on_host(), {count * inner, 1, inner}},
                    .in = {in.on_host(), {count * inner, 1, inner}}};
  launch(test::cpu(), kernel);
  kernel.out.data = out.on_gpu();
  kernel.index.data = index.on_gpu();
  kernel.in.data = in.on_gpu();
  launch(test::gpu(), kernel);
  ASSERT_TRUE(out.agree()) << fmt::format("outer {} size {} count {} inner {}", outer, size, count, inner);
}

template <class T>
class CudaScatterAddOf : public testing::Test {};
using Types = testing::Types<float, double, BFloat16, Float16, std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(CudaScatterAddOf, Types);

TYPED_TEST(CudaScatterAddOf, HasTheBitsOfTheCpu) {
  TANDEM_NEEDS_GPU();
  using T = TypeParam;
  Rng rng(31);
  for (const auto& [outer, size, count, inner] : std::vector<std::tuple<int, int, int, int>>{{1, 1, 1, 1},
                                                                                             {0, 3, 2, 1},
                                                                                             {1, 3, 0, 1},
                                                                                             {1, 3, 2, 1},
                                                                                             {3, 7, 3, 5},
                                                                                             {2, 5, 100, 64},
                                                                                             {1, 5, 33, 1},
                                                                                             {17000, 3, 3, 1},
                                                                                             {3, 2, 3, 8000},
                                                                                             {1, 9, 2048, 1},
                                                                                             {2, 3000, 3000, 2}}) {
    compare_scatter_add<T>(rng, outer, size, count, inner);
  }
}

TEST(CudaScatterAdd, ReportsAnIndexOutOfRange) {
  TANDEM_NEEDS_GPU();
  for (const std::int64_t count : {5, 4000}) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(count), 1);
    indices[3] = -4;
    Twin<std::int64_t> index(indices);
    Twin<float> in(std::vector<float>(static_cast<std::size_t>(count), 1));
    Twin<float> out(std::vector<float>{0, 0, 7});
    launch(test::gpu(), ScatterAdd{.dtype = DType::f32,
                                   .dim_stride = 1,
                                   .dim_size = 2,
                                   .op = "scatter_add",
                                   .loop = test::loop_of({count}),
                                   .out = {out.on_gpu(), {0}},
                                   .index = {index.on_gpu(), {1}},
                                   .in = {in.on_gpu(), {1}}});
    EXPECT_THAT(test::message_of_gpu(), testing::HasSubstr("scatter_add: index -4 at position 3 is outside [0, 2)"));
    EXPECT_EQ(out.download(), (std::vector<float>{0, static_cast<float>(count - 1), 7}));
  }
}

}  // namespace
}  // namespace tandem::kernels

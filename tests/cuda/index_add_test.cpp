#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/kernels/memory.h>

#include "cuda/values.h"

namespace tandem::kernels {
namespace {

using test::Rng;
using test::Twin;

// Some indices are much more frequent than others.
std::vector<std::int64_t> skewed_index(Rng& rng, std::int64_t count, std::int64_t end) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(count));
  for (std::int64_t& i : index)
    i = rng() % 4 == 0 ? end / 2 : test::whole_between(rng, 0, end - 1);
  return index;
}

std::string message_of_gpu() {
  try {
    cuda::current_stream().synchronize();
  } catch (const ValueError& error) {
    return error.what();
  }
  return "";
}

template <class T>
void compare_index_add(Rng& rng, IndexAdd kernel, std::int64_t offset) {
  Twin<T> in(rng, kernel.outer * kernel.count * kernel.inner + offset, 0, 3);
  Twin<T> out(rng, kernel.outer * kernel.size * kernel.inner + offset, 0, 3);
  Twin<std::int64_t> index(skewed_index(rng, kernel.count, kernel.size));
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
using Types = testing::Types<float, double, BFloat16, Half, std::int64_t, std::int32_t, std::uint8_t>;
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
    EXPECT_THAT(message_of_gpu(), testing::HasSubstr("index_select: index 2 at position 3 is outside [0, 2)"));
    EXPECT_EQ(out.download(), (std::vector<float>{0, static_cast<float>(count - 1), 7}));
  }
}

// out [outer, size, inner], along its middle; index and input [outer, count, inner].
template <class T>
void compare_scatter_add(Rng& rng, std::int64_t outer, std::int64_t size, std::int64_t count, std::int64_t inner) {
  Twin<T> in(rng, outer * count * inner, 0, 3);
  Twin<T> out(rng, outer * size * inner, 0, 3);
  Twin<std::int64_t> index(skewed_index(rng, outer * count * inner, size));
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

TYPED_TEST(CudaIndexAddOf, ScatterHasTheBitsOfTheCpu) {
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
    EXPECT_THAT(message_of_gpu(), testing::HasSubstr("scatter_add: index -4 at position 3 is outside [0, 2)"));
    EXPECT_EQ(out.download(), (std::vector<float>{0, static_cast<float>(count - 1), 7}));
  }
}

}  // namespace
}  // namespace tandem::kernels

#include <cstdint>
#include <functional>
#include <string>
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

std::vector<std::int64_t> random_index(Rng& rng, std::int64_t count, std::int64_t end) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(count));
  for (std::int64_t& i : index)
    i = test::whole_between(rng, 0, end - 1);
  return index;
}

// What the GPU says when it is next waited for.
std::string message_of(const std::function<void()>& work) {
  try {
    work();
    cuda::current_stream().synchronize();
  } catch (const ValueError& error) {
    return error.what();
  }
  return "";
}

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
          Twin<std::int64_t> index(random_index(rng, count, kSize));
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
    const std::string message = message_of([&] {
      launch(test::gpu(), IndexSelect{.out = out.on_gpu(),
                                      .in = in.on_gpu(),
                                      .index = index.on_gpu(),
                                      .outer = 1,
                                      .size = 3,
                                      .count = 4,
                                      .inner_bytes = 8,
                                      .op = "embedding"});
    });
    EXPECT_THAT(message, testing::HasSubstr(fmt::format("embedding: index {} at position 1 is outside [0, 3)", bad)));
    EXPECT_EQ(out.download(), (std::vector<float>{5, 6, 0, 0, 1, 2, 3, 4}));
  }
}

// in [outer, size, inner], seen along its middle; the index and the result [outer, count, inner].
template <class T>
void compare_gather(Rng& rng, std::int64_t outer, std::int64_t size, std::int64_t count, std::int64_t inner,
                    std::int64_t offset) {
  Twin<T> in(rng, outer * size * inner + offset);
  Twin<T> out(rng, outer * count * inner + offset);
  Twin<std::int64_t> index(random_index(rng, outer * count * inner, size));
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
          compare_gather<Half>(rng, outer, 9, count, inner, offset);
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
  const std::string message = message_of([&] {
    launch(test::gpu(), Gather{.item_size = 4,
                               .dim_stride = 1,
                               .dim_size = 3,
                               .op = "gather",
                               .loop = test::loop_of({4}),
                               .out = {out.on_gpu(), {1}},
                               .index = {index.on_gpu(), {1}},
                               .in = {in.on_gpu(), {0}}});
  });
  EXPECT_THAT(message, testing::HasSubstr("gather: index 3 at position 2 is outside [0, 3)"));
  EXPECT_EQ(out.download(), (std::vector<float>{3, 1, 0, 2}));
}

}  // namespace
}  // namespace tandem::kernels

#include <tandem/kernels/pool.h>

#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/float16.h>

#include "kernels/arrays.h"
#include "kernels/pool_shapes.h"

namespace tandem::kernels {
namespace {

template <class T>
double slack() {
  return is_16_bit<T> ? 1e-2 : test::tolerance<T>();
}

// Calls body(output, input) for each element of each window: without PoolShape's own arithmetic.
template <class Body>
void for_each_pair(const PoolShape& s, Body&& body) {
  const auto reads = [&](std::size_t d, std::int64_t window, std::int64_t at) {
    if (s.adaptive) {
      return at >= window * s.in[d] / s.out[d] && at < ((window + 1) * s.in[d] + s.out[d] - 1) / s.out[d];
    }
    for (std::int64_t tap = 0; tap < s.window[d]; ++tap) {
      if (window * s.stride[d] - s.padding[d] + tap * s.dilation[d] == at) {
        return true;
      }
    }
    return false;
  };
  for (std::int64_t plane = 0; plane < s.planes; ++plane) {
    for (std::int64_t row = 0; row < s.out[0] * s.in[0]; ++row) {
      const std::int64_t y = row / s.in[0];
      const std::int64_t from = row % s.in[0];
      if (!reads(0, y, from)) {
        continue;
      }
      for (std::int64_t x = 0; x < s.out[1]; ++x) {
        for (std::int64_t at = 0; at < s.in[1]; ++at) {
          if (reads(1, x, at)) {
            body(static_cast<std::size_t>(plane * s.out_plane() + y * s.out[1] + x),
                 static_cast<std::size_t>(plane * s.in_plane() + from * s.in[1] + at));
          }
        }
      }
    }
  }
}

template <class T>
class PoolOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Float16>;
TYPED_TEST_SUITE(PoolOf, Types);

TYPED_TEST(PoolOf, LargestAgreesWithTheNaiveLoop) {
  using T = TypeParam;
  test::Rng rng(1);
  std::vector<PoolShape> shapes = test::awkward_pools();
  for (const PoolShape& shape : test::dilated_pools()) {
    shapes.push_back(shape);
  }
  for (const PoolShape& s : shapes) {
    SCOPED_TRACE(fmt::format("{} of {}x{} to {}x{}", s.planes, s.in[0], s.in[1], s.out[0], s.out[1]));
    const auto in = test::random_values<T>(rng, s.planes * s.in_plane());
    const auto grad = test::random_values<T>(rng, s.planes * s.out_plane());
    std::vector<std::size_t> chosen(grad.size(), in.size());
    for_each_pair(s, [&](std::size_t o, std::size_t i) {
      if (chosen[o] == in.size() || static_cast<double>(in[i]) > static_cast<double>(in[chosen[o]])) {
        chosen[o] = i;
      }
    });
    std::vector<T> out(grad.size());
    std::vector<std::int32_t> places(grad.size());
    launch(test::cpu(),
           MaxPool{.dtype = dtype_of<T>, .shape = s, .in = in.data(), .out = out.data(), .places = places.data()});
    for (std::size_t o = 0; o < out.size(); ++o) {
      ASSERT_EQ(static_cast<double>(out[o]), static_cast<double>(in[chosen[o]])) << o;
      ASSERT_EQ(places[o], static_cast<std::int64_t>(chosen[o]) % s.in_plane()) << o;
    }
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
      auto got = test::random_values<T>(rng, s.planes * s.in_plane());
      std::vector<double> expected(got.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        expected[i] = accumulate == Accumulate::yes ? static_cast<double>(got[i]) : 0;
      }
      for (std::size_t o = 0; o < grad.size(); ++o) {
        expected[chosen[o]] += static_cast<double>(grad[o]);
      }
      launch(test::cpu(), MaxPoolGrad{.dtype = dtype_of<T>,
                                      .accumulate = accumulate,
                                      .shape = s,
                                      .grad = grad.data(),
                                      .places = places.data(),
                                      .in_grad = got.data()});
      EXPECT_LE(test::difference(got, expected), slack<T>());
    }
  }
}

TYPED_TEST(PoolOf, MeanAgreesWithTheNaiveLoop) {
  using T = TypeParam;
  test::Rng rng(2);
  for (const PoolShape& s : test::awkward_pools()) {
    SCOPED_TRACE(fmt::format("{} of {}x{} to {}x{}", s.planes, s.in[0], s.in[1], s.out[0], s.out[1]));
    const auto in = test::random_values<T>(rng, s.planes * s.in_plane());
    const auto grad = test::random_values<T>(rng, s.planes * s.out_plane());
    std::vector<double> counts(grad.size());
    for_each_pair(s, [&](std::size_t o, std::size_t) { counts[o] += 1; });
    for (const std::int64_t divisor : {0, 5}) {
      std::vector<double> expected(grad.size());
      const auto share = [&](std::size_t o) { return 1 / (divisor != 0 ? static_cast<double>(divisor) : counts[o]); };
      for_each_pair(s, [&](std::size_t o, std::size_t i) { expected[o] += static_cast<double>(in[i]) * share(o); });
      std::vector<T> out(grad.size());
      const Divisor by{.include_padding = false, .override = divisor};
      launch(test::cpu(), AvgPool{.dtype = dtype_of<T>, .shape = s, .divisor = by, .in = in.data(), .out = out.data()});
      EXPECT_LE(test::difference(out, expected), slack<T>());
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        auto got = test::random_values<T>(rng, s.planes * s.in_plane());
        std::vector<double> back(got.size());
        for (std::size_t i = 0; i < got.size(); ++i) {
          back[i] = accumulate == Accumulate::yes ? static_cast<double>(got[i]) : 0;
        }
        for_each_pair(s, [&](std::size_t o, std::size_t i) { back[i] += static_cast<double>(grad[o]) * share(o); });
        launch(test::cpu(), AvgPoolGrad{.dtype = dtype_of<T>,
                                        .accumulate = accumulate,
                                        .shape = s,
                                        .divisor = by,
                                        .grad = grad.data(),
                                        .in_grad = got.data()});
        EXPECT_LE(test::difference(got, back), slack<T>());
      }
    }
  }
}

TEST(Pool, PaddingCountsUnlessItIsLeftOut) {
  // One window of 3 over two elements, with one element of padding before; the third one lies behind the padding.
  const PoolShape shape{1, {1, 2}, {1, 1}, false, {1, 3}, {1, 3}, {0, 1}, {1, 1}};
  const std::vector<float> in{3, 6};
  float mean = 0;
  const auto with = [&](bool padding) {
    launch(test::cpu(),
           AvgPool{.dtype = DType::f32, .shape = shape, .divisor = {padding, 0}, .in = in.data(), .out = &mean});
    return mean;
  };
  EXPECT_EQ(with(true), 3);
  EXPECT_EQ(with(false), 4.5F);
}

}  // namespace
}  // namespace tandem::kernels

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/copy.h>

#include "kernels/typed_memory.h"

namespace tandem::kernels {
namespace {

using test::converted;
using test::kAllTypes;
using test::Layout;
using test::Rng;
using Memory = test::TypedMemory;

TEST(Copy, ConvertsBetweenAllTypes) {
  Rng rng(61);
  const std::vector<double> values{0, 1, 2, 3.75, 100, 255, 0.5, -1, -3.75, -100};
  for (const DType in_dtype : kAllTypes) {
    for (const DType out_dtype : kAllTypes) {
      for (const Shape& sizes : {Shape{10}, Shape{2, 5}, Shape{3, 0}, Shape{}, Shape{37, 1003}}) {
        const Layout in_layout = test::random_layout(rng, sizes, true);
        const Layout out_layout = test::random_layout(rng, sizes, false);
        Memory in(in_dtype, in_layout.extent);
        Memory out(out_dtype, out_layout.extent);
        for (std::size_t i = 0; i < static_cast<std::size_t>(in_layout.extent); ++i) {
          const double value = values[i % values.size()];
          const bool holds_negative = is_floating_point(in_dtype) || in_dtype == DType::i64 || in_dtype == DType::i32;
          in.set(i, holds_negative ? value : std::abs(value));
        }
        Copy kernel{.in_dtype = in_dtype,
                    .out_dtype = out_dtype,
                    .loop = test::loop_of(sizes),
                    .out = out.operand(out_layout),
                    .in = in.operand(in_layout)};
        if (rng() % 2 == 0) simplify(kernel.loop, {&kernel.out, &kernel.in});
        launch(test::cpu(), kernel);
        test::for_each_element(
            sizes,
            [&](std::size_t o, std::size_t i) {
              ASSERT_EQ(out.get(o), converted(in.get(i), in_dtype, out_dtype))
                  << name(in_dtype) << " to " << name(out_dtype) << " of " << in.get(i);
            },
            out_layout, in_layout);
      }
    }
  }
}

TEST(Copy, AddsToItsDestinationInAllTypes) {
  Rng rng(67);
  for (const DType in_dtype : kAllTypes) {
    for (const DType out_dtype : kAllTypes) {
      if (out_dtype == DType::boolean) continue;
      const Shape sizes{5, 7};
      const Layout in_layout = test::random_layout(rng, sizes, true);
      const Layout out_layout = test::random_layout(rng, sizes, false);
      Memory in(in_dtype, in_layout.extent);
      Memory out(out_dtype, out_layout.extent);
      for (std::size_t i = 0; i < static_cast<std::size_t>(in_layout.extent); ++i)
        in.set(i, static_cast<double>(i % 5));
      for (std::size_t i = 0; i < static_cast<std::size_t>(out_layout.extent); ++i)
        out.set(i, 3);
      launch(test::cpu(), Copy{.in_dtype = in_dtype,
                               .out_dtype = out_dtype,
                               .accumulate = Accumulate::yes,
                               .loop = test::loop_of(sizes),
                               .out = out.operand(out_layout),
                               .in = in.operand(in_layout)});
      test::for_each_element(
          sizes,
          [&](std::size_t o, std::size_t i) {
            ASSERT_EQ(out.get(o), 3 + in.get(i)) << name(in_dtype) << " to " << name(out_dtype);
          },
          out_layout, in_layout);
    }
  }
}

TEST(Copy, LargeI64StayExact) {
  const std::int64_t in = std::numeric_limits<std::int64_t>::max() - 1;
  std::int64_t out = 0;
  launch(test::cpu(), Copy{.in_dtype = DType::i64,
                           .out_dtype = DType::i64,
                           .loop = test::loop_of({1}),
                           .out = {&out, {1}},
                           .in = {const_cast<std::int64_t*>(&in), {1}}});
  EXPECT_EQ(out, in);
}

TEST(Copy, NaNIsTrue) {
  const float in[3] = {std::numeric_limits<float>::quiet_NaN(), 0.0f, -0.0f};
  bool out[3] = {};
  launch(test::cpu(), Copy{.in_dtype = DType::f32,
                           .out_dtype = DType::boolean,
                           .loop = test::loop_of({3}),
                           .out = {out, {1}},
                           .in = {const_cast<float*>(in), {1}}});
  EXPECT_TRUE(out[0]);
  EXPECT_FALSE(out[1]);
  EXPECT_FALSE(out[2]);
}

}  // namespace
}  // namespace tandem::kernels

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/memory.h>

#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::Layout;
using test::Rng;

constexpr DType kAllTypes[] = {DType::f32, DType::f64, DType::i64, DType::i32, DType::u8, DType::boolean};

// A buffer of any element type, bool included, that reads and writes as double.
class Memory {
 public:
  Memory(DType dtype, std::int64_t count)
      : dtype_(dtype), bytes_(new std::byte[static_cast<std::size_t>(count) * item_size(dtype)]{}) {}
  double get(std::size_t i) const {
    return core::dispatch_any(dtype_, [&]<class T>() { return static_cast<double>(as<T>()[i]); });
  }
  void set(std::size_t i, double value) {
    core::dispatch_any(dtype_, [&]<class T>() { as<T>()[i] = convert<T>(value); });
  }
  Operand operand(const Layout& layout) const {
    Operand result{.data = bytes_.get() + layout.offset * static_cast<std::int64_t>(item_size(dtype_))};
    for (int dim = 0; dim < layout.strides.ndim(); ++dim)
      result.strides[dim] = layout.strides[dim];
    return result;
  }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(bytes_.get());
  }

 private:
  DType dtype_;
  std::unique_ptr<std::byte[]> bytes_;
};

// As the rules say: bool is value != 0, other integers drop the fraction and wrap around in u8.
double converted(double value, DType in, DType out) {
  if (in == DType::boolean) value = value != 0;
  if (out == DType::boolean) return value != 0;
  if (out == DType::u8) return static_cast<std::uint8_t>(static_cast<std::int64_t>(value));
  if (!is_floating_point(out)) return std::trunc(value);
  return out == DType::f32 ? static_cast<double>(static_cast<float>(value)) : value;
}

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

TEST(Fill, WritesItsElementsAndNoOthers) {
  Rng rng(71);
  for (const DType dtype : kAllTypes) {
    for (const Shape& sizes : test::awkward_shapes()) {
      const Layout layout = test::random_layout(rng, sizes, false);
      Memory out(dtype, layout.extent);
      std::vector<double> expected(static_cast<std::size_t>(layout.extent));
      test::for_each_element(sizes, [&](std::size_t at) { expected[at] = converted(7.5, DType::f64, dtype); }, layout);
      Fill kernel{.dtype = dtype, .loop = test::loop_of(sizes), .out = out.operand(layout), .value = 7.5};
      if (rng() % 2 == 0) simplify(kernel.loop, {&kernel.out});
      launch(test::cpu(), kernel);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(out.get(i), expected[i]) << name(dtype) << " " << to_string(sizes);
      }
    }
  }
}

TEST(Arange, CountsInAllTypes) {
  for (const DType dtype : kAllTypes) {
    Memory out(dtype, 10);
    launch(test::cpu(), Arange{.dtype = dtype, .out = out.as<void>(), .count = 10, .start = 3, .step = 2});
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(out.get(i), converted(3 + 2 * static_cast<double>(i), DType::f64, dtype)) << name(dtype);
    }
  }
}

// Each element comes from its number: sums of steps would drift.
TEST(Arange, DoesNotDrift) {
  std::vector<double> out(100001);
  launch(test::cpu(), Arange{.dtype = DType::f64, .out = out.data(), .count = 100001, .start = 0, .step = 0.1});
  EXPECT_EQ(out.back(), 100000 * 0.1);
  launch(test::cpu(), Arange{.dtype = DType::f64, .out = nullptr, .count = 0, .start = 0, .step = 1});
}

struct Cube {
  std::int64_t outer, size, count, inner;
};
const Cube kCubes[] = {{1, 1, 1, 1}, {1, 5, 7, 1}, {3, 4, 2, 5}, {2, 9, 0, 3},
                       {0, 3, 2, 2}, {2, 3, 4, 0}, {1, 2, 9, 8}, {1, 64, 5000, 33}};

TEST(IndexSelect, TakesRowsOfAnySize) {
  Rng rng(73);
  for (const auto& [outer, size, count, inner] : kCubes) {
    std::vector<float> in(static_cast<std::size_t>(outer * size * inner));
    std::iota(in.begin(), in.end(), 0.0f);
    std::vector<std::int64_t> index(static_cast<std::size_t>(count));
    for (std::int64_t& i : index)
      i = test::whole_between(rng, 0, size - 1);
    std::vector<float> out(static_cast<std::size_t>(outer * count * inner), -1);
    launch(test::cpu(), IndexSelect{.out = out.data(),
                                    .in = in.data(),
                                    .index = index.data(),
                                    .outer = outer,
                                    .size = size,
                                    .count = count,
                                    .inner_bytes = inner * 4});
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t k = 0; k < inner; ++k) {
          ASSERT_EQ(out[static_cast<std::size_t>((o * count + i) * inner + k)],
                    in[static_cast<std::size_t>((o * size + index[static_cast<std::size_t>(i)]) * inner + k)]);
        }
      }
    }
  }
}

template <class T>
class IndexAddOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(IndexAddOf, Types);

TYPED_TEST(IndexAddOf, AddsRepeatedIndices) {
  using T = TypeParam;
  Rng rng(79);
  for (const auto& [outer, size, count, inner] : kCubes) {
    std::vector<T> in = test::random_values<T>(rng, outer * count * inner, 0, 3);
    std::vector<std::int64_t> index(static_cast<std::size_t>(count));
    for (std::int64_t& i : index)
      i = test::whole_between(rng, 0, size - 1);
    std::vector<T> out(static_cast<std::size_t>(outer * size * inner), T(1));
    std::vector<double> expected(out.begin(), out.end());
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t k = 0; k < inner; ++k) {
          expected[static_cast<std::size_t>((o * size + index[static_cast<std::size_t>(i)]) * inner + k)] +=
              static_cast<double>(in[static_cast<std::size_t>((o * count + i) * inner + k)]);
        }
      }
    }
    if (std::is_same_v<T, std::uint8_t>) {
      for (double& value : expected)
        value = std::fmod(value, 256);
    }
    launch(test::cpu(), IndexAdd{.dtype = dtype_of<T>,
                                 .out = out.data(),
                                 .in = in.data(),
                                 .index = index.data(),
                                 .outer = outer,
                                 .size = size,
                                 .count = count,
                                 .inner = inner});
    EXPECT_LE(test::difference(out, expected), std::is_floating_point_v<T> ? 2 * test::tolerance<T>() : 0);
  }
}

TYPED_TEST(IndexAddOf, LeavesOutWhatItIsToSkip) {
  using T = TypeParam;
  const std::vector<T> in{1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<std::int64_t> index{2, 0, 2, 1};
  std::vector<T> out(6, T(1));
  launch(test::cpu(), IndexAdd{.dtype = dtype_of<T>,
                               .out = out.data(),
                               .in = in.data(),
                               .index = index.data(),
                               .outer = 1,
                               .size = 3,
                               .count = 4,
                               .inner = 2,
                               .skip = 2});
  EXPECT_EQ(out, (std::vector<T>{4, 5, 8, 9, 1, 1}));
}

TYPED_TEST(IndexAddOf, ScattersOneElementPerRow) {
  using T = TypeParam;
  Rng rng(83);
  for (const auto& [outer, size, inner] :
       std::vector<std::tuple<int, int, int>>{{1, 1, 1}, {1, 5, 1}, {3, 4, 5}, {0, 3, 2}, {2, 3, 0}, {400, 3, 101}}) {
    const std::vector<T> in = test::random_values<T>(rng, outer * inner, 0, 3);
    std::vector<std::int64_t> index(in.size());
    for (std::int64_t& i : index)
      i = test::whole_between(rng, 0, size - 1);
    std::vector<T> out(static_cast<std::size_t>(outer * size * inner), T(1));
    std::vector<T> expected = out;
    for (int o = 0; o < outer; ++o) {
      for (int i = 0; i < inner; ++i) {
        const auto row = static_cast<std::size_t>(o * inner + i);
        T& target = expected[static_cast<std::size_t>((o * size + index[row]) * inner + i)];
        target = static_cast<T>(target + in[row]);
      }
    }
    ScatterAdd kernel{.dtype = dtype_of<T>,
                      .dim_stride = inner,
                      .dim_size = size,
                      .loop = test::loop_of({outer, inner, 1}),
                      .out = {out.data(), {size * inner, 1, 0}},
                      .index = {index.data(), {inner, 1, 0}},
                      .in = {const_cast<T*>(in.data()), {inner, 1, 0}}};
    if (kernel.loop.numel() > 0) launch(test::cpu(), kernel);
    EXPECT_EQ(out, expected);
  }
}

}  // namespace
}  // namespace tandem::kernels

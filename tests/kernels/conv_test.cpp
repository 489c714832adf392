#include <tandem/kernels/conv.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/float16.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/patches.h>

#include "kernels/arrays.h"
#include "kernels/naive_conv.h"

namespace tandem::kernels {
namespace {

using test::for_each_product;

template <class T>
double slack() {
  return is_16_bit<T> ? 1e-2 : test::tolerance<T>();
}

template <class T>
std::vector<double> as_doubles(const std::vector<T>& values) {
  std::vector<double> doubles;
  for (const T value : values) {
    doubles.push_back(static_cast<double>(value));
  }
  return doubles;
}

// The arrays of a convolution, and what its three kernels should give: zeros unless `expects`.
template <class T>
struct Case {
  ConvShape shape;
  std::vector<T> in, weight, grad, out_bias, in_bias;
  std::vector<double> out, in_grad, weight_grad;

  Case(test::Rng& rng, const ConvShape& s, bool expects = false)
      : shape(s),
        in(test::random_values<T>(rng, s.batch * s.in_size())),
        weight(test::random_values<T>(rng, s.weight_size())),
        grad(test::random_values<T>(rng, s.batch * s.out_size())),
        out_bias(test::random_values<T>(rng, s.groups * s.out_channels)),
        in_bias(test::random_values<T>(rng, s.groups * s.in_channels)),
        out(grad.size()),
        in_grad(in.size()),
        weight_grad(weight.size()) {
    if (!expects) {
      return;
    }
    for_each_product(s, [&](std::size_t o, std::size_t i, std::size_t w) {
      out[o] += static_cast<double>(in[i]) * static_cast<double>(weight[w]);
      in_grad[i] += static_cast<double>(grad[o]) * static_cast<double>(weight[w]);
      weight_grad[w] += static_cast<double>(grad[o]) * static_cast<double>(in[i]);
    });
  }

  Conv forward(std::vector<T>& to, bool bias, Accumulate accumulate = Accumulate::no) const {
    return {.dtype = dtype_of<T>,
            .accumulate = accumulate,
            .shape = shape,
            .in = in.data(),
            .weight = weight.data(),
            .bias = bias ? out_bias.data() : nullptr,
            .out = to.data()};
  }
  ConvInGrad back(std::vector<T>& to, bool bias, Accumulate accumulate = Accumulate::no) const {
    return {.dtype = dtype_of<T>,
            .accumulate = accumulate,
            .shape = shape,
            .grad = grad.data(),
            .weight = weight.data(),
            .bias = bias ? in_bias.data() : nullptr,
            .in_grad = to.data()};
  }
  ConvWeightGrad of_weight(std::vector<T>& to, Accumulate accumulate = Accumulate::no) const {
    return {.dtype = dtype_of<T>,
            .accumulate = accumulate,
            .shape = shape,
            .grad = grad.data(),
            .in = in.data(),
            .weight_grad = to.data()};
  }
};

// Returns the sums of `values`, the bias of their channel, and `before`, which a kernel that accumulates should give.
std::vector<double> added(std::vector<double> values, const std::vector<double>& before,
                          const std::vector<double>& bias, std::int64_t plane) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] += before.empty() ? 0 : before[i];
    values[i] += bias.empty() ? 0 : bias[i / static_cast<std::size_t>(plane) % bias.size()];
  }
  return values;
}

template <class T>
class ConvOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Float16>;
TYPED_TEST_SUITE(ConvOf, Types);

TYPED_TEST(ConvOf, AgreesWithTheNaiveLoop) {
  using T = TypeParam;
  test::Rng rng(1);
  for (const ConvShape& shape : test::awkward_convs()) {
    SCOPED_TRACE(test::describe(shape));
    const Case<T> c(rng, shape, true);
    for (const bool bias : {false, true}) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        const bool adds = accumulate == Accumulate::yes;
        SCOPED_TRACE(fmt::format("bias {}, added {}", bias, adds));
        const auto check = [&](const char* what, const std::vector<double>& expected, std::vector<T> got,
                               const std::vector<double>& biases, std::int64_t plane, auto kernel) {
          const std::vector<double> before = adds ? as_doubles(got) : std::vector<double>();
          launch(test::cpu(), kernel(got));
          EXPECT_LE(test::difference(got, added(expected, before, biases, plane), 1e-3), slack<T>()) << what;
        };
        check("forward", c.out, test::random_values<T>(rng, shape.batch * shape.out_size()),
              bias ? as_doubles(c.out_bias) : std::vector<double>(), shape.out[0] * shape.out[1],
              [&](std::vector<T>& to) { return c.forward(to, bias, accumulate); });
        check("gradient of the input", c.in_grad, test::random_values<T>(rng, shape.batch * shape.in_size()),
              bias ? as_doubles(c.in_bias) : std::vector<double>(), shape.in[0] * shape.in[1],
              [&](std::vector<T>& to) { return c.back(to, bias, accumulate); });
        if (!bias) {
          check("gradient of the weight", c.weight_grad, test::random_values<T>(rng, shape.weight_size()), {}, 1,
                [&](std::vector<T>& to) { return c.of_weight(to, accumulate); });
        }
      }
    }
  }
}

TYPED_TEST(ConvOf, GivesToTheBitWhatAReluBehindItGives) {
  using T = TypeParam;
  test::Rng rng(12);
  std::vector<ConvShape> shapes = test::awkward_convs();
  shapes.push_back(test::conv_shape({2, 1, 16, 20, {13, 17}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}));
  shapes.push_back(test::conv_shape({1, 1, 300, 40, {12, 13}, {}, {1, 1}, {1, 1}, {0, 0}, {1, 1}}));
  for (const ConvShape& shape : shapes) {
    SCOPED_TRACE(test::describe(shape));
    Case<T> c(rng, shape);
    if (!c.in.empty()) {
      c.in[c.in.size() / 2] = T(std::numeric_limits<float>::quiet_NaN());
    }
    for (const bool bias : {false, true}) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        std::vector<T> plain = test::random_values<T>(rng, shape.batch * shape.out_size());
        std::vector<T> fused = plain;
        launch(test::cpu(), c.forward(plain, bias, accumulate));
        Conv with_relu = c.forward(fused, bias, accumulate);
        with_relu.relu = true;
        launch(test::cpu(), with_relu);
        for (std::size_t i = 0; i < plain.size(); ++i) {
          const double sum = static_cast<double>(plain[i]);
          const double expected = sum < 0 ? 0 : sum;
          const double got = static_cast<double>(fused[i]);
          ASSERT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected)))
              << i << ": " << got << ", not " << expected;
        }
      }
    }
  }
}

template <class T = float>
void expect_the_naive_loop(test::Rng& rng, const ConvShape& shape) {
  const Case<T> c(rng, shape, true);
  std::vector<T> out(c.out.size());
  std::vector<T> in_grad(c.in.size());
  std::vector<T> weight_grad(c.weight.size());
  launch(test::cpu(), c.forward(out, false));
  launch(test::cpu(), c.back(in_grad, false));
  launch(test::cpu(), c.of_weight(weight_grad));
  EXPECT_LE(test::difference(out, c.out, 0.1), 2e-6);
  EXPECT_LE(test::difference(in_grad, c.in_grad, 0.1), 2e-6);
  EXPECT_LE(test::difference(weight_grad, c.weight_grad, 0.1), 2e-6);
}

TEST(Conv, RandomShapesAgreeWithTheNaiveLoop) {
  test::Rng rng(4);
  const auto both = [&](std::int64_t low, std::int64_t high) {
    return Sizes2{test::whole_between(rng, low, high), test::whole_between(rng, low, high)};
  };
  for (int i = 0; i < 150; ++i) {
    ConvShape shape{.batch = test::whole_between(rng, 1, 5),
                    .groups = test::whole_between(rng, 1, 3),
                    .in_channels = test::whole_between(rng, 1, 9),
                    .out_channels = test::whole_between(rng, 1, 20),
                    .in = both(1, 26),
                    .out = {},
                    .window = both(1, 5),
                    .stride = both(1, 3),
                    .padding = both(0, 4),
                    .dilation = both(1, 3)};
    shape = test::conv_shape(shape);
    if (shape.out[0] < 1 || shape.out[1] < 1) {
      continue;
    }
    // Sometimes less padding behind the image than before it.
    shape.out[i % 2] -= shape.out[i % 2] > 1 && i % 5 == 0 ? 1 : 0;
    SCOPED_TRACE(test::describe(shape));
    expect_the_naive_loop(rng, shape);
  }
}

TEST(Conv, RandomWindowsOfThreeByThreeAgreeWithTheNaiveLoop) {
  test::Rng rng(5);
  for (int i = 0; i < 30; ++i) {
    const std::int64_t padding = test::whole_between(rng, 0, 2);
    ConvShape shape{.batch = test::whole_between(rng, 1, 4),
                    .groups = test::whole_between(rng, 1, 2),
                    .in_channels = test::whole_between(rng, 8, 24),
                    .out_channels = test::whole_between(rng, 11, 35),
                    .in = {test::whole_between(rng, 3, 12), test::whole_between(rng, 3, 20)},
                    .out = {},
                    .window = {3, 3},
                    .stride = {1, 1},
                    .padding = {padding, test::whole_between(rng, 0, 2)},
                    .dilation = {1, 1}};
    shape = test::conv_shape(shape);
    // Sometimes a stride, and sometimes less padding behind the image than before it.
    if (i % 4 == 0) {
      shape.stride = {2, test::whole_between(rng, 1, 2)};
      shape = test::conv_shape(shape);
    }
    shape.out[i % 2] -= shape.out[i % 2] > 1 && i % 5 == 0 ? 1 : 0;
    SCOPED_TRACE(test::describe(shape));
    expect_the_naive_loop(rng, shape);
  }
  // Deeper than a block of the depth, and many tiles.
  expect_the_naive_loop(rng, test::conv_shape({2, 1, 300, 20, {7, 5}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}));
  expect_the_naive_loop(rng, test::conv_shape({2, 1, 16, 17, {40, 61}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}));
}

TEST(Conv, DeepWindowsAgreeWithTheNaiveLoop) {
  test::Rng rng(9);
  // Deeper than what is written out of a block of columns at a time.
  const ConvShape shape = test::conv_shape({1, 1, 330, 1, {29, 35}, {}, {10, 10}, {1, 1}, {0, 0}, {1, 1}});
  expect_the_naive_loop<float>(rng, shape);
  expect_the_naive_loop<double>(rng, shape);
}

// A convolution whose blocks would need more scratch memory than there is takes another way.
TEST(Conv, WideImagesAndLargeWindowsFitInScratchMemory) {
  test::Rng rng(8);
  for (const ConvShape& shape : {test::conv_shape({1, 1, 8, 32, {4, 60'000}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}),
                                 test::conv_shape({1, 1, 1, 8, {191, 192}, {}, {128, 129}, {1, 1}, {0, 0}, {1, 1}}),
                                 test::conv_shape({1, 1, 9000, 8, {2, 20}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}})}) {
    SCOPED_TRACE(test::describe(shape));
    const Case<float> c(rng, shape);
    std::vector<float> out(c.grad.size());
    std::vector<float> in_grad(c.in.size());
    std::vector<float> weight_grad(c.weight.size());
    EXPECT_NO_THROW(launch(test::cpu(), c.forward(out, false)));
    EXPECT_NO_THROW(launch(test::cpu(), c.back(in_grad, false)));
    EXPECT_NO_THROW(launch(test::cpu(), c.of_weight(weight_grad)));
  }
}

// Winograd's sums of a tile hold all of its elements, so that an infinite one makes NaN of outputs that do not read it.
TEST(Conv, AnElementThatIsNotFiniteReachesNoFartherThanItsTiles) {
  test::Rng rng(6);
  Case<float> c(rng, test::conv_shape({1, 1, 16, 16, {12, 12}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}));
  c.in[5 * 12 + 5] = std::numeric_limits<float>::infinity();
  std::vector<float> out(c.out.size());
  launch(test::cpu(), c.forward(out, false));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t y = i / 12 % 12;
    const std::size_t x = i % 12;
    const bool reads_it = y >= 4 && y <= 6 && x >= 4 && x <= 6;
    const bool is_near = y >= 4 && y <= 7 && x >= 4 && x <= 7;
    EXPECT_TRUE(is_near || std::isfinite(out[i])) << y << " " << x;
    EXPECT_FALSE(reads_it && std::isfinite(out[i])) << y << " " << x;
  }
}

TEST(Conv, ABlocksCopyOfImagesDoesNotGrowWithTheBatch) {
  const cpu::PatchAxis axis{.size = 200, .positions = 2, .step = 1, .first = -1, .taps = 3, .tap_step = 100};
  const cpu::Patches patches{
      .data = nullptr, .images = 1'000'000, .image_stride = 0, .channels = 32, .y = axis, .x = axis};
  const std::int64_t columns = cpu::columns_of_block(patches, 512);
  const std::int64_t depth = cpu::depth_of_block(patches, columns, 256);
  EXPECT_GE(columns, 4);
  EXPECT_GE(depth, 9);
  EXPECT_LE((columns / 4 + 1) * (depth / 9 + 1) * 202 * 202, 4 * cpu::kSlab);
  const cpu::PatchAxis usual{.size = 56, .positions = 56, .step = 1, .first = -1, .taps = 3, .tap_step = 1};
  const cpu::Patches images{.data = nullptr, .images = 16, .image_stride = 0, .channels = 64, .y = usual, .x = usual};
  EXPECT_EQ(cpu::columns_of_block(images, 512), 512);
  EXPECT_EQ(cpu::depth_of_block(images, 512, 256), 256);
}

// A copy of whole padded lines would be 279 MB here.
TEST(Conv, ACopyOfLongLinesHasOnlyThePartThatABlockReads) {
  constexpr std::int64_t kLong = 1'700'001;
  const ConvShape shape = test::conv_shape({1, 1, 1, 1, {1, kLong}, {}, {41, 3}, {1, 1}, {20, 1}, {1, 1}});
  const std::vector<float> in(static_cast<std::size_t>(kLong), 1);
  const std::vector<float> weight(static_cast<std::size_t>(shape.weight_size()), 0.5F);
  std::vector<float> out(static_cast<std::size_t>(shape.out_size()));
  launch(test::cpu(), Conv{.dtype = DType::f32,
                           .shape = shape,
                           .in = in.data(),
                           .weight = weight.data(),
                           .bias = nullptr,
                           .out = out.data()});
  EXPECT_EQ(out.front(), 1);
  EXPECT_EQ(out[1'000'000], 1.5F);
  EXPECT_EQ(out.back(), 1);
}

// Sizes of which a strip at a time is widened: along the lines, along one long line, and with strides.
TEST(Conv, LargeImagesOf16BitsAgreeWithThoseOf32) {
  test::Rng rng(7);
  for (const ConvShape& shape : {test::conv_shape({1, 1, 2, 3, {2400, 1000}, {}, {5, 3}, {2, 1}, {3, 1}, {2, 1}}),
                                 test::conv_shape({1, 1, 3, 3, {1, 2'200'000}, {}, {1, 4}, {1, 3}, {0, 5}, {1, 1}})}) {
    SCOPED_TRACE(test::describe(shape));
    const Case<BFloat16> half(rng, shape);
    Case<float> whole(rng, shape);
    whole.in.assign(half.in.begin(), half.in.end());
    whole.weight.assign(half.weight.begin(), half.weight.end());
    whole.grad.assign(half.grad.begin(), half.grad.end());
    whole.in_bias.assign(half.in_bias.begin(), half.in_bias.end());
    whole.out_bias.assign(half.out_bias.begin(), half.out_bias.end());
    const auto check = [&](auto kernel_of, std::size_t size) {
      std::vector<BFloat16> got(size);
      std::vector<float> expected(size);
      launch(test::cpu(), kernel_of(half, got));
      launch(test::cpu(), kernel_of(whole, expected));
      EXPECT_LE(test::difference(got, as_doubles(expected), 1e-3), 5e-3);
    };
    check([](const auto& c, auto& to) { return c.forward(to, true); }, half.grad.size());
    check([](const auto& c, auto& to) { return c.back(to, true); }, half.in.size());
    check([](const auto& c, auto& to) { return c.of_weight(to); }, half.weight.size());
  }
}

TEST(Conv, AnyNumberOfThreadsGivesTheSameBits) {
  test::Rng rng(2);
  const int threads = num_threads();
  for (const ConvShape& shape : {test::conv_shape({16, 1, 20, 24, {40, 40}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}),
                                 test::conv_shape({64, 1, 6, 16, {14, 14}, {}, {5, 5}, {1, 1}, {0, 0}, {1, 1}}),
                                 test::conv_shape({40, 1, 90, 70, {6, 6}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}),
                                 test::conv_shape({8, 2, 12, 16, {31, 29}, {}, {3, 3}, {2, 2}, {1, 1}, {1, 1}})}) {
    SCOPED_TRACE(test::describe(shape));
    const Case<float> c(rng, shape);
    std::vector<std::vector<float>> first;
    for (const int count : {1, 2, 3, 8}) {
      set_num_threads(count);
      std::vector<std::vector<float>> got{std::vector<float>(c.grad.size()), std::vector<float>(c.in.size()),
                                          std::vector<float>(c.weight.size())};
      launch(test::cpu(), c.forward(got[0], true));
      launch(test::cpu(), c.back(got[1], false));
      launch(test::cpu(), c.of_weight(got[2]));
      if (first.empty()) {
        first = got;
      }
      EXPECT_EQ(got, first) << count << " threads";
    }
  }
  set_num_threads(threads);
}

TEST(Conv, ReadsAndWritesNothingOutsideItsArrays) {
  test::Rng rng(3);
  for (const ConvShape& shape : test::awkward_convs()) {
    SCOPED_TRACE(test::describe(shape));
    const Case<float> c(rng, shape);
    // Arrays of their exact sizes, which AddressSanitizer watches, and guards around the results.
    const auto guarded = [](std::size_t count, auto kernel) {
      std::vector<float> memory(count + 64, 12345);
      kernel(memory.data() + 32);
      EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + 32, [](float x) { return x == 12345; }));
      EXPECT_TRUE(std::all_of(memory.end() - 32, memory.end(), [](float x) { return x == 12345; }));
    };
    std::vector<float> none;
    guarded(c.grad.size(), [&](float* out) {
      Conv kernel = c.forward(none, true);
      kernel.out = out;
      launch(test::cpu(), kernel);
    });
    guarded(c.in.size(), [&](float* out) {
      ConvInGrad kernel = c.back(none, false);
      kernel.in_grad = out;
      launch(test::cpu(), kernel);
    });
    guarded(c.weight.size(), [&](float* out) {
      ConvWeightGrad kernel = c.of_weight(none);
      kernel.weight_grad = out;
      launch(test::cpu(), kernel);
    });
  }
}

}  // namespace
}  // namespace tandem::kernels

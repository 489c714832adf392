#include <cmath>
#include <limits>

#include <tandem/kernels/clip.h>
#include <tandem/kernels/elementwise_loss.h>

#include "cuda/both.h"

namespace tandem::kernels {
namespace {

using test::Both;
using test::Rng;
using test::values_between;

constexpr std::int64_t kCounts[] = {0, 1, 5, 1000, 8192, 8193, 300001};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(CudaClip, NormsAgreeWithTheCpu) {
  TANDEM_NEEDS_GPU();
  Rng rng(5);
  test::for_floating_types([&]<class T>() {
    for (const std::int64_t count : kCounts) {
      for (const std::size_t offset : {std::size_t{0}, std::size_t{3}}) {
        Both<T> values(values_between<T>(rng, count), offset);
        for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
          Both<double> total({0.5});
          SquaredNorm squared{.dtype = dtype_of<T>,
                              .accumulate = accumulate,
                              .count = count,
                              .values = values.host(),
                              .total = total.host()};
          launch(test::cpu(), squared);
          squared.values = values.device();
          squared.total = total.device();
          launch(test::gpu(), squared);
          ASSERT_LE(total.distance(), 1e-13);
          for (const double power : {1.0, 2.0, 2.5, kInfinity}) {
            if (power != 1 && power != kInfinity && count > 10000) continue;  // these powers are slow
            Both<double> sum({0.5});
            PowerNorm norm{.dtype = dtype_of<T>,
                           .accumulate = accumulate,
                           .count = count,
                           .values = values.host(),
                           .total = sum.host(),
                           .power = power};
            launch(test::cpu(), norm);
            norm.values = values.device();
            norm.total = sum.device();
            launch(test::gpu(), norm);
            ASSERT_LE(sum.distance(), 1e-13);
          }
        }
      }
    }
  });
}

TEST(CudaClip, TheLargestMagnitudeIsNanWhereThereIsOne) {
  TANDEM_NEEDS_GPU();
  for (const std::size_t at : {std::size_t{0}, std::size_t{17}, std::size_t{69999}}) {
    std::vector<float> values(70000, 1.F);
    values[at] = static_cast<float>(kNan);
    Both<float> both(values);
    Both<double> total({2.0});
    PowerNorm norm{.dtype = DType::f32,
                   .accumulate = Accumulate::yes,
                   .count = 70000,
                   .values = both.device(),
                   .total = total.device(),
                   .power = kInfinity};
    launch(test::gpu(), norm);
    norm.values = both.host();
    norm.total = total.host();
    launch(test::cpu(), norm);
    EXPECT_EQ(total.distance(), 0);
    EXPECT_TRUE(std::isnan(total.values()[0]));
  }
}

TEST(CudaClip, ValuesAreClippedAsOnTheCpu) {
  TANDEM_NEEDS_GPU();
  Rng rng(6);
  test::for_floating_types([&]<class T>() {
    using C = ComputeType<T>;
    for (const std::int64_t count : kCounts) {
      auto data = values_between<T>(rng, count);
      if (count > 5) {
        data[2] = T(static_cast<C>(kNan));
        data[4] = T(C(0));
      }
      for (const double norm : {0.25, 20.0, kNan}) {
        Both<T> values(data);
        Both<double> size({norm});
        ClipByNorm kernel{
            .dtype = dtype_of<T>, .count = count, .values = values.host(), .norm = size.host(), .max_norm = 1};
        launch(test::cpu(), kernel);
        kernel.values = values.device();
        kernel.norm = size.device();
        launch(test::gpu(), kernel);
        ASSERT_LE(values.distance(), test::rounding<T>());
      }
      Both<T> values(data, 1);
      ClipByValue kernel{.dtype = dtype_of<T>, .count = count, .values = values.host(), .limit = 0.5};
      launch(test::cpu(), kernel);
      kernel.values = values.device();
      launch(test::gpu(), kernel);
      ASSERT_EQ(values.distance(), 0);
    }
  });
}

TEST(CudaClip, APreparedGradientIsMultiplied) {
  TANDEM_NEEDS_GPU();
  Rng rng(7);
  test::for_floating_types([&]<class T>() {
    for (const double g : {1.0, 0.5, -3.0}) {
      Both<T> gradient(values_between<T>(rng, 10001));
      Both<T> factor({T(static_cast<ComputeType<T>>(g))});
      RescaleGradient kernel{.dtype = dtype_of<T>, .count = 10001, .grad = factor.host(), .gradient = gradient.host()};
      launch(test::cpu(), kernel);
      kernel.grad = factor.device();
      kernel.gradient = gradient.device();
      launch(test::gpu(), kernel);
      EXPECT_EQ(gradient.distance(), 0);
    }
  });
}

}  // namespace
}  // namespace tandem::kernels

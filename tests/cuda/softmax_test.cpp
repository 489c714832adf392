#include <limits>

#include <fmt/format.h>

#include <tandem/kernels/softmax.h>

#include "cuda/both.h"

namespace tandem::kernels {
namespace {

using test::Both;
using test::Rng;
using test::values_between;

struct Sizes {
  std::int64_t outer, size, inner;
};
// Rows for one lane, for some lanes, for a warp, a block and a large block, and rows too long for shared memory;
// columns of several widths.
constexpr Sizes kSizes[] = {{0, 3, 1},    {3, 0, 1},    {1, 1, 1},     {5, 1, 1},   {300, 3, 1},  {37, 10, 1},
                            {9, 33, 1},   {65, 72, 1},  {9, 1000, 1},  {5, 257, 1}, {3, 1024, 1}, {3, 1031, 1},
                            {2, 8192, 1}, {2, 8195, 1}, {2, 60001, 1}, {2, 3, 2},   {3, 10, 5},   {2, 100, 33},
                            {2, 3, 1000}, {1, 3000, 3}, {2, 5, 0}};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
std::vector<T> logits_of(Rng& rng, const Sizes& s) {
  auto values = values_between<T>(rng, s.outer * s.size * s.inner, -8, 8);
  const double special[] = {-kInfinity, 1e4, -1e4};
  for (std::size_t i = 0; s.size > 2 && i < values.size(); i += 7) {
    if (rng() % 4 == 0) values[i] = T(static_cast<ComputeType<T>>(special[rng() % 3]));
  }
  return values;
}

template <class Body>
void for_cases(Body&& body) {
  Rng rng(21);
  test::for_floating_types([&]<class T>() {
    for (const Sizes& s : kSizes) {
      for (const bool log : {false, true}) {
        for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
          if (s.size > 50000 && (offset != 0 || sizeof(T) == 2)) continue;
          SCOPED_TRACE(
              fmt::format("{}, {} x {} x {}, log {}, offset {}", dtype_of<T>, s.outer, s.size, s.inner, log, offset));
          body.template operator()<T>(rng, s, log, offset);
        }
      }
    }
  });
}

TEST(CudaSoftmax, AgreesWithTheCpu) {
  TANDEM_NEEDS_GPU();
  for_cases([]<class T>(Rng& rng, const Sizes& s, bool log, std::size_t offset) {
    Both<T> in(logits_of<T>(rng, s), offset);
    Both<T> out(std::vector<T>(in.values().size(), T(7)), offset == 0 && rng() % 2 == 0 ? 1 : offset);
    Softmax kernel{.dtype = dtype_of<T>,
                   .log = log,
                   .outer = s.outer,
                   .size = s.size,
                   .inner = s.inner,
                   .in = in.host(),
                   .out = out.host()};
    launch(test::cpu(), kernel);
    kernel.in = in.device();
    kernel.out = out.device();
    launch(test::gpu(), kernel);
    ASSERT_LE(out.distance(), test::rounding<T>());
  });
}

TEST(CudaSoftmax, GradientsAgreeWithTheCpu) {
  TANDEM_NEEDS_GPU();
  for_cases([]<class T>(Rng& rng, const Sizes& s, bool log, std::size_t offset) {
    const std::int64_t count = s.outer * s.size * s.inner;
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
      Both<T> grad(values_between<T>(rng, count));
      Both<T> out(values_between<T>(rng, count, log ? -9 : 0, log ? 0 : 0.2), offset);
      Both<T> in_grad(values_between<T>(rng, count), rng() % 2);
      SoftmaxGrad kernel{.dtype = dtype_of<T>,
                         .log = log,
                         .accumulate = accumulate,
                         .outer = s.outer,
                         .size = s.size,
                         .inner = s.inner,
                         .grad = grad.host(),
                         .out = out.host(),
                         .in_grad = in_grad.host()};
      launch(test::cpu(), kernel);
      kernel.grad = grad.device();
      kernel.out = out.device();
      kernel.in_grad = in_grad.device();
      launch(test::gpu(), kernel);
      ASSERT_LE(in_grad.distance(), 4 * test::rounding<T>());
    }
  });
}

TEST(CudaSoftmax, ARowWithoutAHighestValueIsNoNumber) {
  TANDEM_NEEDS_GPU();
  for (const double value : {-kInfinity, kInfinity, static_cast<double>(NAN)}) {
    for (const std::int64_t size : {1, 5, 100, 3000}) {
      std::vector<float> values(static_cast<std::size_t>(3 * size), value == -kInfinity ? -INFINITY : 1.F);
      for (std::int64_t i = 0; i < size; ++i)
        values[static_cast<std::size_t>(i)] = 1.F;  // the first row has finite values only
      values[static_cast<std::size_t>(size)] = static_cast<float>(value);
      for (const bool log : {false, true}) {
        Both<float> in(values);
        Both<float> out(values);
        Softmax kernel{
            .dtype = DType::f32, .log = log, .outer = 3, .size = size, .inner = 1, .in = in.host(), .out = out.host()};
        launch(test::cpu(), kernel);
        kernel.in = in.device();
        kernel.out = out.device();
        launch(test::gpu(), kernel);
        EXPECT_LE(out.distance(), 1e-6) << value << " " << size << " " << log;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels

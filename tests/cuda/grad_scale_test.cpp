#include <tandem/kernels/grad_scale.h>

#include <limits>

#include <fmt/format.h>

#include <tandem/kernels/optimizer.h>

#include "cuda/both.h"

namespace tandem::kernels {
namespace {

using test::Both;
using test::Rng;
using test::values_between;

constexpr std::int64_t kCounts[] = {0, 1, 7, 1000, 4099, 70001};

// Runs `kernel` on both sides. `point` sets the pointers for a side.
template <class Kernel, class Point>
void launch_both(Kernel kernel, const Point& point) {
  point(kernel, [](auto& array) { return array.host(); });
  launch(test::cpu(), kernel);
  point(kernel, [](auto& array) { return array.device(); });
  launch(test::gpu(), kernel);
}

using Record = Both<double>;  // the fields of a GradScale

template <class Array>
GradScale* record_of(Array* fields) {
  return reinterpret_cast<GradScale*>(fields);
}

TEST(CudaGradScale, WhatIsNotFiniteIsFoundWhereverItIs) {
  TANDEM_NEEDS_GPU();
  Rng rng(1);
  test::for_floating_types([&]<class T>() {
    for (const std::int64_t count : kCounts) {
      for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
        for (const bool unscale : {false, true}) {
          for (const double last : {0.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
            SCOPED_TRACE(fmt::format("{}, {} elements, offset {}, the last {}", dtype_of<T>, count, offset, last));
            auto values = values_between<T>(rng, count);
            if (count > 0) {
              values.back() = T(static_cast<ComputeType<T>>(last));
            }
            Both<T> gradients(values, offset);
            Record record({0.25, 0, 3});
            Both<float> found({0});
            launch_both(FindInf{.dtype = dtype_of<T>, .unscale = unscale, .count = count}, [&](auto& k, auto side) {
              k.gradients = side(gradients);
              k.record = record_of(side(record));
              k.found_inf = side(found);
            });
            const double expected = count > 0 && last != 0 ? 1 : 0;
            EXPECT_EQ(record.values(), (std::vector<double>{0.25, expected, 3}));
            EXPECT_EQ(record.download(), record.values());
            EXPECT_EQ(found.values()[0], expected);
            EXPECT_EQ(found.download(), found.values());
            const auto got = gradients.download();
            for (std::size_t i = 0; i + 1 < got.size(); ++i) {
              ASSERT_EQ(got[i], gradients.values()[i]);
              ASSERT_EQ(got[i], unscale ? T(ComputeType<T>(values[i]) * ComputeType<T>(0.25)) : values[i]);
            }
          }
        }
      }
    }
  });
}

TEST(CudaGradScale, ZerosStayZeroWhenTheInverseIsInfinite) {
  TANDEM_NEEDS_GPU();
  Both<float> gradients({0, 1, 0});
  Record record({std::numeric_limits<double>::infinity(), 0, 0});
  Both<float> found({0});
  launch_both(FindInf{.dtype = DType::f32, .unscale = true, .count = 3}, [&](auto& k, auto side) {
    k.gradients = side(gradients);
    k.record = record_of(side(record));
    k.found_inf = side(found);
  });
  for (const auto& got : {gradients.values(), gradients.download()}) {
    EXPECT_EQ(got[0], 0);
    EXPECT_EQ(got[2], 0);
  }
  EXPECT_EQ(found.values()[0], 1);
  EXPECT_EQ(found.download()[0], 1);
}

TEST(CudaGradScale, ScaleAndCountsMoveAsOnTheCpu) {
  TANDEM_NEEDS_GPU();
  Both<float> scale({3});
  Both<std::int32_t> tracker({0});
  Both<float> found({0});
  Record record({0, 0, 0});
  for (const double inf : {0., 0., 1., 0., 0., 0., 1., 1., 0., 0.}) {
    launch_both(StartGradScale{}, [&](auto& k, auto side) {
      k.scale = side(scale);
      k.record = record_of(side(record));
    });
    Both<float> gradient({inf != 0 ? std::numeric_limits<float>::infinity() : 1.0F});
    launch_both(FindInf{.dtype = DType::f32, .unscale = true, .count = 1}, [&](auto& k, auto side) {
      k.gradients = side(gradient);
      k.record = record_of(side(record));
      k.found_inf = side(found);
    });
    launch_both(FinishGradScale{.unscaled = inf != 0}, [&](auto& k, auto side) { k.record = record_of(side(record)); });
    launch_both(UpdateGradScale{.growth = 1.7, .backoff = 0.3, .interval = 2}, [&](auto& k, auto side) {
      k.scale = side(scale);
      k.growth_tracker = side(tracker);
      k.found_inf = side(found);
    });
    EXPECT_EQ(scale.download(), scale.values());
    EXPECT_EQ(tracker.download(), tracker.values());
    EXPECT_EQ(record.download(), record.values());
    EXPECT_EQ(found.values()[0], 0);
  }
  EXPECT_EQ(record.values()[2], 3);
}

// Arrays for steps with scaled gradients and masters, some of which differ from their parameter.
template <class T>
struct Arrays {
  Both<T> param, grad;
  Both<float> master, a, b, c;
  Record record;

  Arrays(Rng& rng, std::int64_t count, std::size_t offset, double found)
      : param(values_between<T>(rng, count), offset),
        grad(values_between<T>(rng, count)),
        master(masters(param.values(), offset)),
        a(values_between<float>(rng, count, -0.2, 0.2)),  // squares below b: a centred variance must not vanish
        b(values_between<float>(rng, count, 0.1, 1)),
        c(values_between<float>(rng, count, 0.1, 1)),
        record({0.125, found, 2}) {}

  static std::vector<float> masters(const std::vector<T>& params, std::size_t first) {
    std::vector<float> all(params.begin(), params.end());
    for (std::size_t i = first; i < all.size(); i += 3) {
      all[i] = 7;
    }
    return all;
  }

  template <class Kernel, class Kept>
  void step_and_compare(Kernel kernel, std::int64_t count, const Kept& kept) {
    StepState state{.learning_rate = 0.01, .step = 5, .momentum = 0.9, .weight_decay = 0.01};
    kernel.dtype = dtype_of<T>;
    kernel.count = count;
    kernel.state = &state;
    const auto before = param.values();
    launch_both(kernel, [&](auto& k, auto side) {
      k.param = side(param);
      k.grad = side(grad);
      k.master = side(master);
      state.scale = record_of(side(record));
      kept(k, side);
    });
    ASSERT_LE(master.distance(), 1e-6);
    ASSERT_LE(a.distance(), 1e-6);
    ASSERT_LE(b.distance(), 1e-6);
    ASSERT_LE(c.distance(), 1e-6);
    ASSERT_LE(param.distance(), test::rounding<T>());
    const std::vector<float> masters = master.download();
    const std::vector<T> params = param.download();
    for (std::size_t i = 0; i < params.size(); ++i) {
      ASSERT_EQ(params[i].bits(), record.values()[1] != 0 ? before[i].bits() : T(masters[i]).bits());
    }
  }
};

TEST(CudaGradScale, MastersStepAsOnTheCpu) {
  TANDEM_NEEDS_GPU();
  Rng rng(3);
  const auto run = [&]<class T>() {
    for (const std::int64_t count : kCounts) {
      for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
        for (const double found : {0.0, 1.0}) {
          SCOPED_TRACE(fmt::format("{}, {} elements, offset {}, found {}", dtype_of<T>, count, offset, found));
          const auto arrays = [&] { return Arrays<T>(rng, count, offset, found); };
          for (const bool more : {false, true}) {
            auto sgd = arrays();
            sgd.step_and_compare(Sgd{.dampening = 0.1, .nesterov = more}, count,
                                 [&](Sgd& k, auto side) { k.momentum_buffer = more ? side(sgd.a) : nullptr; });
            auto adam = arrays();
            adam.step_and_compare(Adam{.beta2 = 0.99, .eps = 1e-8, .decoupled = more, .maximize = more}, count,
                                  [&](Adam& k, auto side) {
                                    k.exp_avg = side(adam.a);
                                    k.exp_avg_sq = side(adam.b);
                                    k.max_exp_avg_sq = more ? side(adam.c) : nullptr;
                                  });
            auto rms = arrays();
            rms.step_and_compare(RmsProp{.alpha = 0.9, .eps = 0.1}, count, [&](RmsProp& k, auto side) {
              k.square_avg = side(rms.b);
              k.grad_avg = more ? side(rms.a) : nullptr;
              k.momentum_buffer = more ? side(rms.c) : nullptr;
            });
            auto adagrad = arrays();
            adagrad.step_and_compare(Adagrad{.lr_decay = 0.1, .eps = 1e-8}, count,
                                     [&](Adagrad& k, auto side) { k.sum = side(adagrad.b); });
          }
        }
      }
    }
  };
  run.operator()<BFloat16>();
  run.operator()<Float16>();
}

}  // namespace
}  // namespace tandem::kernels

#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/kernels/cross_entropy.h>

#include "cuda/both.h"

namespace tandem::kernels {
namespace {

using test::Both;
using test::Rng;
using test::values_between;

enum class Kind { indices, weighted, smooth, probabilities };

struct Case {
  std::int64_t rows, classes;
};
constexpr Case kCases[] = {{0, 4},    {1, 1},    {7, 2},    {128, 10}, {700, 10},  {33, 100}, {65, 72},
                           {9, 1000}, {5000, 3}, {3, 1024}, {2, 1025}, {17, 1025}, {3, 8197}, {2, 60001}};

// The arrays of a test. Kernels are made for one side or the other.
template <class T>
struct Arrays {
  using C = ComputeType<T>;
  Kind kind;
  std::int64_t rows, classes;
  Both<T> logits, probabilities, weight;
  Both<std::int64_t> indices;
  Both<C> normalizer, scale;

  Arrays(Rng& rng, Kind k, const Case& c, std::size_t offset)
      : kind(k),
        rows(c.rows),
        classes(c.classes),
        logits(values_between<T>(rng, c.rows * c.classes, -5, 5), offset),
        probabilities(values_between<T>(rng, k == Kind::probabilities ? c.rows * c.classes : 0, 0, 0.2)),
        weight(values_between<T>(rng, c.classes, 0.1, 2)),
        indices(indices_of(rng, c)),
        normalizer(std::vector<C>(static_cast<std::size_t>(2 * c.rows), C(7))),
        scale(std::vector<C>(1, C(7))) {}

  static std::vector<std::int64_t> indices_of(Rng& rng, const Case& c) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(c.rows));
    for (auto& value : values) {
      value = rng() % 5 == 0 ? -100 : test::whole_between(rng, 0, c.classes - 1);
    }
    return values;
  }
  ClassTarget target(bool on_gpu) {
    const bool by_index = kind != Kind::probabilities;
    return {.indices = by_index ? (on_gpu ? indices.device() : indices.host()) : nullptr,
            .probabilities = by_index ? nullptr : (on_gpu ? probabilities.device() : probabilities.host()),
            .weight = kind == Kind::indices ? nullptr : (on_gpu ? weight.device() : weight.host()),
            .label_smoothing = kind == Kind::smooth ? 0.1 : 0};
  }
};

template <class Body>
void for_cases(Body&& body) {
  Rng rng(31);
  test::for_floating_types([&]<class T>() {
    for (const Kind kind : {Kind::indices, Kind::weighted, Kind::smooth, Kind::probabilities}) {
      for (const Case& c : kCases) {
        const std::size_t offset = rng() % 2;
        if (c.classes > 50000 && (sizeof(T) != 4 || kind == Kind::weighted)) continue;
        SCOPED_TRACE(fmt::format("{}, kind {}, {} x {}, offset {}", dtype_of<T>, static_cast<int>(kind), c.rows,
                                 c.classes, offset));
        Arrays<T> arrays(rng, kind, c, offset);
        body(rng, arrays);
      }
    }
  });
}

TEST(CudaCrossEntropy, ForwardAndBackwardAgreeWithTheCpu) {
  TANDEM_NEEDS_GPU();
  for_cases([]<class T>(Rng& rng, Arrays<T>& a) {
    using C = ComputeType<T>;
    const std::int64_t count = a.rows * a.classes;
    for (const int mode : {0, 1, 2}) {  // sum, mean, each row
      const bool each = mode == 2;
      Both<T> loss(std::vector<T>(static_cast<std::size_t>(each ? a.rows : 1), T(C(7))));
      Both<T> prepared(std::vector<T>(static_cast<std::size_t>(count), T(C(7))), rng() % 2);
      const bool prepare = CrossEntropy::can_prepare("cuda:0", dtype_of<T>, each, a.target(true));
      CrossEntropy kernel{.dtype = dtype_of<T>,
                          .loss_per_row = each,
                          .mean = mode == 1,
                          .rows = a.rows,
                          .classes = a.classes,
                          .logits = a.logits.host(),
                          .target = a.target(false),
                          .normalizer = a.normalizer.host(),
                          .scale = a.scale.host(),
                          .loss = loss.host()};
      launch(test::cpu(), kernel);
      if (prepare) {
        Both<T> one({T(C(1))});
        launch(test::cpu(), CrossEntropyGrad{.dtype = dtype_of<T>,
                                             .loss_per_row = false,
                                             .rows = a.rows,
                                             .classes = a.classes,
                                             .logits = a.logits.host(),
                                             .target = a.target(false),
                                             .normalizer = a.normalizer.host(),
                                             .scale = a.scale.host(),
                                             .grad = one.host(),
                                             .logits_grad = prepared.host()});
      }
      kernel.logits = a.logits.device();
      kernel.target = a.target(true);
      kernel.normalizer = a.normalizer.device();
      kernel.scale = a.scale.device();
      kernel.loss = loss.device();
      kernel.logits_grad = prepare ? prepared.device() : nullptr;
      launch(test::gpu(), kernel);
      ASSERT_LE(loss.distance(), test::rounding<T>());
      ASSERT_LE(a.scale.distance(), test::rounding<C>());
      ASSERT_LE(prepared.distance(), 2 * test::rounding<T>());
      ASSERT_LE(a.normalizer.distance(), test::rounding<C>());

      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        Both<T> grad(values_between<T>(rng, each ? a.rows : 1));
        Both<T> result(values_between<T>(rng, count), rng() % 2);
        CrossEntropyGrad backward{.dtype = dtype_of<T>,
                                  .loss_per_row = each,
                                  .accumulate = accumulate,
                                  .rows = a.rows,
                                  .classes = a.classes,
                                  .logits = a.logits.host(),
                                  .target = a.target(false),
                                  .normalizer = a.normalizer.host(),
                                  .scale = a.scale.host(),
                                  .grad = grad.host(),
                                  .logits_grad = result.host()};
        launch(test::cpu(), backward);
        backward.logits = a.logits.device();
        backward.target = a.target(true);
        backward.normalizer = a.normalizer.device();
        backward.scale = a.scale.device();
        backward.grad = grad.device();
        backward.logits_grad = result.device();
        launch(test::gpu(), backward);
        ASSERT_LE(result.distance(1), 4 * test::rounding<T>());

        if (a.kind != Kind::probabilities) continue;
        Both<T> of_target(values_between<T>(rng, count));
        CrossEntropyTargetGrad by_target{.dtype = dtype_of<T>,
                                         .loss_per_row = each,
                                         .accumulate = accumulate,
                                         .rows = a.rows,
                                         .classes = a.classes,
                                         .logits = a.logits.host(),
                                         .target = a.target(false),
                                         .normalizer = a.normalizer.host(),
                                         .scale = a.scale.host(),
                                         .grad = grad.host(),
                                         .probabilities_grad = of_target.host()};
        launch(test::cpu(), by_target);
        by_target.logits = a.logits.device();
        by_target.target = a.target(true);
        by_target.normalizer = a.normalizer.device();
        by_target.scale = a.scale.device();
        by_target.grad = grad.device();
        by_target.probabilities_grad = of_target.device();
        launch(test::gpu(), by_target);
        ASSERT_LE(of_target.distance(), 2 * test::rounding<T>());
      }
    }
  });
}

TEST(CudaCrossEntropy, AnIndexThatIsNoClassIsReportedAndIgnored) {
  TANDEM_NEEDS_GPU();
  for (const std::int64_t bad : {std::int64_t{10}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()}) {
    const std::vector<float> logits(40, 0.F);
    test::DeviceArray<float> x(logits);
    test::DeviceArray<std::int64_t> indices({3, bad, -100, 9});
    test::DeviceArray<float> normalizer(std::vector<float>(8));
    test::DeviceArray<float> scale(std::vector<float>(1));
    test::DeviceArray<float> loss(std::vector<float>(1));
    test::DeviceArray<float> gradient(std::vector<float>(40));
    launch(test::gpu(), CrossEntropy{.dtype = DType::f32,
                                     .loss_per_row = false,
                                     .mean = true,
                                     .rows = 4,
                                     .classes = 10,
                                     .logits = x.data(),
                                     .target = {.indices = indices.data(),
                                                .bad = {.kind = core::BadValue::Kind::target,
                                                        .op = CrossEntropy::kName,
                                                        .end = 10,
                                                        .ignored = -100}},
                                     .normalizer = normalizer.data(),
                                     .scale = scale.data(),
                                     .loss = loss.data(),
                                     .logits_grad = gradient.data()});
    try {
      loss.download();
      FAIL() << "no error";
    } catch (const ValueError& error) {
      const std::string expected = fmt::format("cross_entropy: target {} in row 1", bad);
      EXPECT_EQ(std::string(error.what()).substr(0, expected.size()), expected);
    }
    EXPECT_NEAR(loss.download()[0], std::log(10.), 1e-5);
    EXPECT_NEAR(gradient.download()[3], -0.45, 1e-6);
    EXPECT_EQ(gradient.download()[11], 0);
  }
}

}  // namespace
}  // namespace tandem::kernels

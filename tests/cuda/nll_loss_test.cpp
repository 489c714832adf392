#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include <tandem/kernels/nll_loss.h>

#include "cuda/both.h"

namespace tandem::kernels {
namespace {

using test::Both;
using test::Rng;
using test::values_between;

// Targets, a fifth of which are ignored.
std::vector<std::int64_t> random_targets(Rng& rng, std::int64_t rows, std::int64_t classes) {
  std::vector<std::int64_t> targets(static_cast<std::size_t>(rows));
  for (std::int64_t& target : targets)
    target = rng() % 5 == 0 ? -100 : test::whole_between(rng, 0, classes - 1);
  return targets;
}

TEST(CudaNegativeLogLikelihood, AgreesWithTheCpu) {
  TANDEM_NEEDS_GPU();
  struct Sizes {
    std::int64_t outer, classes, inner;
  };
  Rng rng(41);
  test::for_floating_types([&]<class T>() {
    using C = ComputeType<T>;
    for (const Sizes& s : {Sizes{0, 3, 1}, Sizes{1, 1, 1}, Sizes{100, 10, 1}, Sizes{5, 3, 7}, Sizes{5000, 4, 1}}) {
      SCOPED_TRACE(fmt::format("{}, {} x {} x {}", dtype_of<T>, s.outer, s.classes, s.inner));
      const std::int64_t rows = s.outer * s.inner;
      Both<T> log_probs(values_between<T>(rng, rows * s.classes, -4, 0));
      Both<std::int64_t> indices(random_targets(rng, rows, s.classes));
      Both<T> weight(values_between<T>(rng, s.classes, 0.1, 2));
      for (const int mode : {0, 1, 2}) {
        for (const bool weighted : {false, true}) {
          const bool each = mode == 2;
          Both<T> loss(std::vector<T>(static_cast<std::size_t>(each ? rows : 1), T(C(7))));
          Both<C> scale(std::vector<C>(1, C(7)));
          NegativeLogLikelihood kernel{.dtype = dtype_of<T>,
                                       .loss_per_row = each,
                                       .mean = mode == 1,
                                       .outer = s.outer,
                                       .classes = s.classes,
                                       .inner = s.inner,
                                       .log_probs = log_probs.host(),
                                       .indices = indices.host(),
                                       .weight = weighted ? weight.host() : nullptr,
                                       .ignore_index = -100,
                                       .scale = scale.host(),
                                       .loss = loss.host()};
          launch(test::cpu(), kernel);
          kernel.log_probs = log_probs.device();
          kernel.indices = indices.device();
          kernel.weight = weighted ? weight.device() : nullptr;
          kernel.scale = scale.device();
          kernel.loss = loss.device();
          launch(test::gpu(), kernel);
          ASSERT_LE(loss.distance(), test::rounding<T>());
          ASSERT_LE(scale.distance(), test::rounding<C>());
          for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
            Both<T> grad(values_between<T>(rng, each ? rows : 1));
            Both<T> result(values_between<T>(rng, rows * s.classes));
            NegativeLogLikelihoodGrad backward{.dtype = dtype_of<T>,
                                               .loss_per_row = each,
                                               .accumulate = accumulate,
                                               .outer = s.outer,
                                               .classes = s.classes,
                                               .inner = s.inner,
                                               .indices = indices.host(),
                                               .weight = weighted ? weight.host() : nullptr,
                                               .ignore_index = -100,
                                               .scale = scale.host(),
                                               .grad = grad.host(),
                                               .log_probs_grad = result.host()};
            launch(test::cpu(), backward);
            backward.indices = indices.device();
            backward.weight = weighted ? weight.device() : nullptr;
            backward.scale = scale.device();
            backward.grad = grad.device();
            backward.log_probs_grad = result.device();
            launch(test::gpu(), backward);
            ASSERT_LE(result.distance(), test::rounding<T>());
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace tandem::kernels

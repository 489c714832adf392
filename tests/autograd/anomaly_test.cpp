#include <cmath>

#include <gtest/gtest.h>

#include <tandem/autograd/anomaly.h>
#include <tandem/tandem.h>

#include "support/message.h"

namespace tandem {
namespace {

using autograd::DetectAnomaly;
using test::message_of;

TEST(DetectAnomaly, NamesTheFirstOpWhoseResultIsNotFinite) {
  Parameter w(ones({3}));
  const auto compute = [&] { return ((w - 1).log() * 0).sum(); };  // log(0) is -inf, and -inf * 0 is NaN
  EXPECT_TRUE(std::isnan(compute().item()));
  {
    const DetectAnomaly detects;
    EXPECT_EQ(message_of<ValueError>(compute),
              "log: the result [3] has -inf at element 0, and all results before it in this step were finite: look at "
              "this layer's parameters and at the batch");
    EXPECT_NO_THROW((w + 1).log().sum().backward());
  }
  EXPECT_TRUE(std::isnan(compute().item()));
}

TEST(DetectAnomaly, NamesTheLayerInReplicasAndRanksToo) {
  nn::Sequential model(nn::Linear(2, 2), nn::ReLU(), nn::Linear(2, 2));
  {
    const NoGradGuard no_grad;
    model.get_submodule("0").get_parameter("weight").fill_(1);
    model.get_submodule("2").get_parameter("weight").fill_(3e38);
  }
  const DetectAnomaly detects;
  const auto text = [&](auto&& run) { return message_of<ValueError>([&] { run(ones({2, 2})); }); };
  EXPECT_EQ(text(model).substr(0, 42), "Linear '2': the result [2, 2] has inf at e");
  parallel::DataParallel replicas(model, {"cpu:0", "cpu:1"});
  EXPECT_EQ(text(replicas).substr(0, 42), "Linear '2': the result [1, 2] has inf at e");
}

TEST(AllFinite, LooksAtEveryElementOfEveryType) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    Tensor x = zeros({3, 100}, {.dtype = dtype});
    EXPECT_TRUE(autograd::all_finite(x));
    for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
      Tensor y = x.clone();
      y[2][99].fill_(bad);
      EXPECT_FALSE(autograd::all_finite(y));
      EXPECT_TRUE(autograd::all_finite(y.slice(1, 0, 99)));
    }
  }
  EXPECT_TRUE(autograd::all_finite(ones({3}, {.dtype = DType::i64})));
  EXPECT_TRUE(autograd::all_finite(zeros({0})));
}

}  // namespace
}  // namespace tandem

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "kernels/recorder.h"

// The product that computes the gradient of a ReLU's result applies the ReLU's mask in the same pass. The results must
// be equal to those without this fusion.

namespace tandem {
namespace {

using test::launches_of;

using Gradients = std::vector<std::vector<float>>;

struct Net {
  Tensor x = randn({5, 7}), w1 = randn({6, 7}), b1 = randn({6}), w2 = randn({3, 6}), b2 = randn({3});
  explicit Net(DType dtype = DType::f32) {
    for (Tensor* leaf : {&x, &w1, &b1, &w2, &b2}) {
      *leaf = leaf->to(dtype);
      leaf->requires_grad_();
    }
  }
  Gradients gradients() {
    Gradients all;
    for (Tensor* leaf : {&x, &w1, &b1, &w2, &b2}) {
      all.push_back(leaf->grad().to_vector<float>());
      leaf->zero_grad();
    }
    return all;
  }
};

void expect_near(const Gradients& got, const Gradients& expected, double nearness) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t leaf = 0; leaf < got.size(); ++leaf) {
    ASSERT_EQ(got[leaf].size(), expected[leaf].size());
    for (std::size_t i = 0; i < got[leaf].size(); ++i) {
      const double scale = std::max(1.0, std::abs(static_cast<double>(expected[leaf][i])));
      EXPECT_NEAR(got[leaf][i], expected[leaf][i], nearness * scale) << "leaf " << leaf << " at " << i;
    }
  }
}

// To the bit on a CPU. A GPU's product sums the gradients of biases in another order than a kernel of their own.
void expect_same(const Gradients& got, const Gradients& expected) {
  if (Tensor(randn({1})).device().type == DeviceType::cpu) {
    EXPECT_EQ(got, expected);
  } else {
    expect_near(got, expected, 1e-6);
  }
}

using Use = Tensor (*)(const Net&, const Tensor& hidden);

// One user that masks, then two, then other users before and after it.
const Use kUses[] = {
    [](const Net& net, const Tensor& h) { return linear(h, net.w2, net.b2).pow(2).sum(); },
    [](const Net& net, const Tensor& h) { return (linear(h, net.w2, net.b2) * linear(h, net.w2, net.b2)).sum(); },
    [](const Net& net, const Tensor& h) { return linear(h, net.w2, net.b2).sum() + (h * h).sum(); },
    [](const Net& net, const Tensor& h) { return (h * h).sum() + linear(h, net.w2, net.b2).sum() + h.exp().mean(); },
    [](const Net& net, const Tensor& h) { return linear(h, net.w2, net.b2).sum() + (net.b1 * net.b1).sum(); },
    [](const Net& net, const Tensor& h) { return linear(h.reshape({1, 5, 6}), net.w2, net.b2).sum(); },
    [](const Net& net, const Tensor& h) {
      return linear(linear_relu(h, net.w1.narrow(1, 0, 6), {}), net.w2, net.b2).sum();
    },
    // Layers with the same bias, in the backward pass after the layer that sums the gradient of h: they read h, too, or
    // what comes of h, or nothing of it.
    [](const Net& net, const Tensor& h) {
      const Tensor tied = linear(h, net.w1.narrow(1, 0, 6), net.b1);
      return (tied * tied).sum() + linear(h, net.w2, net.b2).sum();
    },
    [](const Net& net, const Tensor& h) {
      const Tensor tied = linear_relu(h, net.w1.narrow(1, 0, 6), net.b1);
      return (tied * tied).sum() + linear(h, net.w2, net.b2).sum() + linear(tied, net.w2, net.b2).sum();
    },
    [](const Net& net, const Tensor& h) {
      const Tensor first = linear(h, net.w2, net.b2);
      const Tensor other = linear_relu(net.x, net.w1, net.b1);
      const Tensor second = linear(h, net.w2, net.b2) * 2;
      return first.sum() + linear(other, net.w2, net.b2).pow(2).sum() + (other * 3).sum() + second.pow(2).sum();
    },
};

TEST(ReluMask, GradientsAreThoseWithoutIt) {
  manual_seed(3);
  Net net;
  for (const Use use : kUses) {
    for (const bool fused : {false, true}) {
      const auto hidden = [&] {
        return fused ? linear_relu(net.x, net.w1, net.b1) : linear(net.x, net.w1, net.b1).relu();
      };
      use(net, hidden()).backward();
      const auto masked = net.gradients();
      const Tensor seen = hidden();
      seen.register_hook([](const Tensor&) { return Tensor(); });  // an observed tensor gets the full gradient
      use(net, seen).backward();
      SCOPED_TRACE("use " + std::to_string(&use - kUses) + " fused " + std::to_string(fused));
      expect_same(masked, net.gradients());
    }
  }
}

// The gradient passes through a hidden value of NaN, with and without an observer.
TEST(ReluMask, NotANumberGivesTheSameGradientsWithAndWithoutAHook) {
  manual_seed(4);
  Net net;
  const Tensor broken = tensor<float>({1, 1, NAN, 1, 1}).reshape({5, 1});
  for (const bool fused : {false, true}) {
    std::vector<std::vector<float>> seen;
    for (const bool hook : {false, true}) {
      const Tensor x = net.x.detach() * broken;
      const Tensor h = fused ? linear_relu(x, net.w1, net.b1) : linear(x, net.w1, net.b1).relu();
      if (hook) {
        h.register_hook([](const Tensor&) { return Tensor(); });
      }
      linear(h, net.w2, net.b2).sum().backward();
      seen.push_back(net.b1.grad().to_vector<float>());  // the sum of the masked gradient over the batch
      for (Tensor* leaf : {&net.w1, &net.b1, &net.w2, &net.b2}) {
        leaf->zero_grad();
      }
    }
    expect_same({seen[0]}, {seen[1]});
  }
}

TEST(ReluMask, SparesThePassOverTheGradient) {
  Net net;
  for (const bool fused : {false, true}) {
    const auto launches = [&](bool seen) {
      const Tensor h = fused ? linear_relu(net.x, net.w1, net.b1) : linear(net.x, net.w1, net.b1).relu();
      if (seen) {
        h.register_hook([](const Tensor&) { return Tensor(); });
      }
      const Tensor loss = linear(h, net.w2, net.b2).sum();
      return launches_of([&] { loss.backward(); });
    };
    EXPECT_EQ(std::ranges::count(launches(false), "pointwise") + 1, std::ranges::count(launches(true), "pointwise"));
  }
}

TEST(ReluMask, AHookAndRetainGradSeeAllOfTheGradient) {
  Net net;
  for (const bool retain : {false, true}) {
    Tensor h = linear_relu(net.x, net.w1, net.b1);
    Tensor seen;
    if (retain) {
      h.retain_grad();
    } else {
      h.register_hook([&](const Tensor& g) {
        seen = g.clone();
        return Tensor();
      });
    }
    linear(h, net.w2, net.b2).sum().backward();
    const Tensor all = ones({5, 3}).matmul(net.w2.detach());
    EXPECT_LT(((retain ? h.grad() : seen) - all).abs().amax().item(), 1e-6) << retain;
  }
}

TEST(ReluMask, AValueChangedInPlaceIsStillFound) {
  Net net;
  Tensor h = linear_relu(net.x, net.w1, net.b1);
  const Tensor loss = linear(h, net.w2, net.b2).sum();
  {
    const NoGradGuard no_grad;
    h.add_(1);
  }
  EXPECT_THROW(loss.backward(), AutogradError);
}

// ---- on a GPU, where products mask and sum the gradients of biases: the library by bits in 16 bits and TF32, our own
// kernel for small products in f32 ----

struct Arithmetic {
  DType dtype;
  const char* precision;
};

class Fused : public ::testing::TestWithParam<Arithmetic> {
 protected:
  void SetUp() override { set_float32_matmul_precision(GetParam().precision); }
  void TearDown() override {
    set_float32_matmul_precision("highest");
    cuda::set_fused_backward(true);
  }
  static Net net() { return Net(GetParam().dtype); }
  // The tolerance for rounding in sums of a few numbers of about 1.
  static double nearness() {
    const bool exact = GetParam().dtype == DType::f32 && std::string(GetParam().precision) == "highest";
    return exact ? 1e-6 : GetParam().dtype == DType::bf16 ? 0.06 : 0.01;
  }
};
INSTANTIATE_TEST_SUITE_P(Types, Fused,
                         ::testing::Values(Arithmetic{DType::f32, "highest"}, Arithmetic{DType::f32, "high"},
                                           Arithmetic{DType::bf16, "high"}, Arithmetic{DType::f16, "high"}),
                         [](const auto& type) {
                           return std::string(name(type.param.dtype)) + "_" + type.param.precision;
                         });

TEST_P(Fused, GradientsAreThoseWithoutFusing) {
  manual_seed(4);
  Net net = Fused::net();
  for (const Use use : kUses) {
    SCOPED_TRACE(&use - kUses);
    std::vector<std::vector<std::vector<float>>> all;
    for (const bool fuses : {false, true}) {
      cuda::set_fused_backward(fuses);
      use(net, linear_relu(net.x, net.w1, net.b1)).backward();
      use(net, linear_relu(net.x, net.w1, net.b1)).backward();  // adds to the existing gradients
      all.push_back(net.gradients());
    }
    expect_near(all[1], all[0], nearness());
  }
}

TEST_P(Fused, AGraphThatIsKeptGivesTheSameTwice) {
  Net net = Fused::net();
  const Tensor loss = linear(linear_relu(net.x, net.w1, net.b1), net.w2, net.b2).pow(2).mean();
  loss.backward({}, true);
  const auto first = net.gradients();
  loss.backward();
  EXPECT_EQ(first, net.gradients());
}

TEST_P(Fused, AHookOnABiasSeesItsGradient) {
  Net net = Fused::net();
  const auto backward = [&] { linear(linear_relu(net.x, net.w1, net.b1), net.w2, net.b2).sum().backward(); };
  backward();
  const auto all = net.gradients();
  std::vector<float> seen;
  net.b1.register_hook([&](const Tensor& g) {
    seen = g.to_vector<float>();
    return g * 2;
  });
  backward();
  EXPECT_EQ(seen, all[2]);
  EXPECT_EQ(net.b1.grad().to_vector<float>(), (net.b1.grad() / 2 * 2).to_vector<float>());
  EXPECT_EQ((net.b1.grad() / 2).to_vector<float>(), seen);
}

// The first pass ends between the product that sums the gradient of b1 and the layer of b1.
TEST_P(Fused, AFailedPassLeavesNothingToTheNext) {
  Net net = Fused::net();
  const Tensor h = linear_relu(net.x, net.w1, net.b1);
  const Tensor loss = linear(h, net.w2, net.b2).sum() + (h * h).sum();
  loss.backward({}, true);
  const Gradients expected = net.gradients();
  HookHandle handle = net.w2.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("stop"); });
  EXPECT_THROW(loss.backward({}, true), std::runtime_error);
  handle.remove();
  for (Tensor* leaf : {&net.x, &net.w1, &net.b1, &net.w2, &net.b2}) {
    leaf->zero_grad();
  }
  loss.backward({}, true);
  EXPECT_EQ(net.gradients(), expected);
}

// The engine takes nothing that a failed pass left in the memory of b1's gradient for a gradient, even if the hooks of
// the next pass change where the gradient goes.
TEST_P(Fused, AFailedPassLeavesNothingToHooks) {
  Net net = Fused::net();
  const auto loss = [&] { return linear(linear_relu(net.x, net.w1, net.b1), net.w2, net.b2).sum(); };
  loss().backward();
  const Gradients expected = net.gradients();
  HookHandle handle = net.w2.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("stop"); });
  EXPECT_THROW((loss() * 7).backward(), std::runtime_error);
  handle.remove();
  for (Tensor* leaf : {&net.x, &net.w1, &net.b1, &net.w2, &net.b2}) {
    leaf->zero_grad();
  }
  HookHandle on_bias = net.b1.register_hook([](const Tensor&) { return Tensor(); });
  const HookHandle removes = net.w2.register_hook([&](const Tensor&) {
    on_bias.remove();
    return Tensor();
  });
  loss().backward();
  // A hook takes the bias's gradient out of a product, and another product may round a 16-bit value to its neighbour.
  // A gradient left by the failed pass would be seven times as large.
  const Gradients found = net.gradients();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t leaf = 0; leaf < found.size(); ++leaf) {
    EXPECT_THAT(found[leaf], testing::Pointwise(testing::FloatNear(0.02F), expected[leaf]));
  }
}

// A graph that reads the previous gradient's memory notices that a failed pass wrote there, as products on a GPU do.
TEST_P(Fused, AFailedPassCountsAsAChangeOfTheGradientsMemory) {
  Net net = Fused::net();
  const auto loss = [&] { return linear(linear_relu(net.x, net.w1, net.b1), net.w2, net.b2).sum(); };
  loss().backward();
  const Tensor old = net.b1.grad();
  net.gradients();
  const Tensor q = randn({6}).to(GetParam().dtype).requires_grad_();
  const Tensor reads = (q * old).sum();
  const HookHandle handle = net.w2.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("stop"); });
  EXPECT_THROW(loss().backward(), std::runtime_error);
  if (old.device().type == DeviceType::cuda) {
    EXPECT_THROW(reads.backward(), AutogradError);
  } else {
    reads.backward();  // nothing was written
  }
}

// The hook runs between the product that sums the gradient of b1 and the layer of b1.
TEST_P(Fused, HooksOfOtherLayersFindABiasWithoutAGradient) {
  Net net = Fused::net();
  const auto backward = [&] { linear(linear_relu(net.x, net.w1, net.b1), net.w2, net.b2).sum().backward(); };
  backward();
  const Gradients expected = net.gradients();
  const auto run_with = [&](const std::function<void()>& hook) {
    HookHandle handle = net.w2.register_post_accumulate_grad_hook([&](const Tensor&) { hook(); });
    backward();
    handle.remove();
  };
  run_with([&] { EXPECT_FALSE(net.b1.grad().defined()); });
  EXPECT_EQ(net.gradients(), expected);
  run_with([&] { net.b1.zero_grad(); });
  EXPECT_EQ(net.gradients(), expected);
  run_with([&] { net.b1.register_hook([](const Tensor&) { return Tensor(); }).remove(); });
  EXPECT_EQ(net.gradients(), expected);
}

TEST_P(Fused, SparesThePassesOverTheGradients) {
  const bool gpu = Tensor(randn({1})).device().type == DeviceType::cuda;
  Net net = Fused::net();
  const auto launches = [&](bool fuses) {
    cuda::set_fused_backward(fuses);
    const Tensor loss = linear(linear_relu(net.x, net.w1, net.b1), net.w2, net.b2).sum();
    const std::vector<std::string> all = launches_of([&] { loss.backward(); });
    net.gradients();
    return std::ranges::count(all, "reduce");
  };
  EXPECT_EQ(launches(false) - launches(true), gpu ? 2 : 0);
}

TEST_P(Fused, FrozenBiasesAndEmptyBatches) {
  for (const bool fuses : {false, true}) {
    cuda::set_fused_backward(fuses);
    Net net = Fused::net();
    net.b1.requires_grad_(false);
    linear(linear_relu(net.x, net.w1, net.b1), net.w2, net.b2).sum().backward();
    EXPECT_FALSE(net.b1.grad().defined());
    EXPECT_TRUE(net.w1.grad().defined());
    Net other = Fused::net();
    linear(linear_relu(other.x.narrow(0, 0, 0), other.w1, other.b1), other.w2, other.b2).sum().backward();
    EXPECT_EQ(other.b1.grad().to_vector<float>(), std::vector<float>(6));
    EXPECT_EQ(other.b2.grad().to_vector<float>(), std::vector<float>(3));
  }
}

TEST_P(Fused, ACapturedStepHasTheBitsOfAnEagerOne) {
  manual_seed(5);
  Net eager = net();
  manual_seed(5);
  Net captured = net();
  const auto step_of = [](Net& net) {
    return [&net](Tensor x) {
      for (Tensor* leaf : {&net.w1, &net.b1, &net.w2, &net.b2}) {
        leaf->zero_grad();
      }
      linear(linear_relu(x, net.w1, net.b1), net.w2, net.b2).pow(2).sum().backward();
      const NoGradGuard no_grad;
      for (Tensor* leaf : {&net.w1, &net.b1, &net.w2, &net.b2}) {
        leaf->sub_(leaf->grad() * 0.01);
      }
      return net.b1.grad() * 1;
    };
  };
  auto step = graph::capture(step_of(captured));
  for (int i = 0; i < 6; ++i) {
    const Tensor x = randn({5, 7}).to(GetParam().dtype);
    EXPECT_EQ(step(x).to_vector<float>(), step_of(eager)(x).to_vector<float>()) << i;
  }
  EXPECT_GT(step.stats().replayed, 0u);
  EXPECT_EQ(step.stats().gpu_graphs, captured.w1.device().type == DeviceType::cuda ? 1u : 0u);
  EXPECT_EQ(captured.w1.to_vector<float>(), eager.w1.to_vector<float>());
}

}  // namespace
}  // namespace tandem

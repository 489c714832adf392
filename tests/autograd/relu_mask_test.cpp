#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "kernels/recorder.h"

// The product that gives a ReLU's result its gradient applies the ReLU's mask in the same pass, where nobody sees the
// difference.

namespace tandem {
namespace {

using test::launches_of;

struct Net {
  Tensor x = randn({5, 7}), w1 = randn({6, 7}), b1 = randn({6}), w2 = randn({3, 6}), b2 = randn({3});
  Net() {
    for (Tensor* leaf : {&x, &w1, &b1, &w2, &b2}) {
      leaf->requires_grad_();
    }
  }
  std::vector<std::vector<float>> gradients() {
    std::vector<std::vector<float>> all;
    for (Tensor* leaf : {&x, &w1, &b1, &w2, &b2}) {
      all.push_back(leaf->grad().to_vector<float>());
      leaf->zero_grad();
    }
    return all;
  }
};

using Use = Tensor (*)(const Net&, const Tensor& hidden);

// One user that masks, two, and others before and after it.
const Use kUses[] = {
    [](const Net& net, const Tensor& h) { return linear(h, net.w2, net.b2).pow(2).sum(); },
    [](const Net& net, const Tensor& h) { return (linear(h, net.w2, net.b2) * linear(h, net.w2, net.b2)).sum(); },
    [](const Net& net, const Tensor& h) { return linear(h, net.w2, net.b2).sum() + (h * h).sum(); },
    [](const Net& net, const Tensor& h) { return (h * h).sum() + linear(h, net.w2, net.b2).sum() + h.exp().mean(); },
    [](const Net& net, const Tensor& h) { return linear(h.reshape({1, 5, 6}), net.w2, net.b2).sum(); },
    [](const Net& net, const Tensor& h) {
      return linear(linear_relu(h, net.w1.narrow(1, 0, 6), {}), net.w2, net.b2).sum();
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
      seen.register_hook([](const Tensor&) { return Tensor(); });  // who looks gets all of the gradient
      use(net, seen).backward();
      EXPECT_EQ(masked, net.gradients()) << "use " << (&use - kUses) << " fused " << fused;
    }
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

}  // namespace
}  // namespace tandem

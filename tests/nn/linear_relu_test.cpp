#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/graph/capture.h>
#include <tandem/nn/container.h>
#include <tandem/nn/conv.h>
#include <tandem/nn/stateless.h>
#include <tandem/tensor/frame.h>

#include "kernels/recorder.h"
#include "models.h"
#include "support/gpu.h"
#include "support/message.h"

// relu() of a temporary result of linear() overwrites that result and joins its node. The only visible differences are
// fewer launches and less memory.

namespace tandem {
namespace {

using test::launches_of;
using ::testing::ElementsAre;
using Names = std::vector<std::string>;

// ---- launches ----

// The style of the README.
struct Plain : nn::Module<Plain> {
  explicit Plain(DType dtype = DType::f32)
      : fc1(child("fc1", nn::Linear(6, 9, {.dtype = dtype}))),
        fc2(child("fc2", nn::Linear(9, 9, {.bias = false, .dtype = dtype}))),
        fc3(child("fc3", nn::Linear(9, 4, {.dtype = dtype}))) {}
  Tensor forward(const Tensor& input) const {
    Tensor x = relu(fc1(input));
    x = act(fc2(x));
    return fc3(x);
  }
  nn::Linear fc1, fc2, fc3;
  nn::ReLU act = child("act", nn::ReLU());
};

nn::Sequential in_sequence() {
  return nn::Sequential(nn::Linear(6, 9), nn::ReLU(), nn::Linear(9, 9, {.bias = false}), nn::ReLU(), nn::Linear(9, 4));
}

TEST(LinearRelu, APlainModelLaunchesOnePassMorePerReluThanASequential) {
  const auto passes = [x = randn({5, 6}).requires_grad_()](const auto& net) {
    Tensor loss;
    Names forward = launches_of([&] { loss = net(x).sum(); });
    Names backward = launches_of([&] { loss.backward(); });
    return std::pair(std::move(forward), std::move(backward));
  };
  const auto [forward, backward] = passes(Plain());
  const auto [fused_forward, fused_backward] = passes(in_sequence());
  EXPECT_THAT(forward, ElementsAre("matmul", "pointwise", "matmul", "pointwise", "matmul", "reduce"));
  EXPECT_THAT(fused_forward, ElementsAre("matmul", "matmul", "matmul", "reduce"));
  EXPECT_EQ(backward, fused_backward);
  // sum() launches the first two. The product of the following layer applies each mask.
  if (Tensor(randn({1})).device().type == DeviceType::cpu) {
    EXPECT_THAT(backward, ElementsAre("fill", "pointwise", "matmul", "reduce", "matmul", "matmul", "matmul", "matmul",
                                      "reduce", "matmul"));
  } else {  // products sum the gradients of biases, too
    EXPECT_THAT(backward, ElementsAre("fill", "pointwise", "matmul", "matmul", "matmul", "matmul", "matmul", "matmul"));
  }
}

TEST(LinearRelu, ACapturedStepLaunchesOnePassMorePerReluToo) {
  const auto launches = [&](const auto& net) {
    auto step = graph::capture([&](const Tensor& x) {
      for (const Tensor& p : net.parameters()) {
        p.zero_grad();
      }
      const Tensor loss = net(x).pow(2).sum();
      loss.backward();
      return loss;
    });
    for (int i = 0; i < 5; ++i) {
      const Tensor x = full({5, 6}, 0.25 * i);
      const float captured = step(x).template item<float>();
      EXPECT_EQ(captured, net(x).pow(2).sum().template item<float>()) << i;
    }
    EXPECT_GT(step.stats().replayed, 0u);
    return step.stats().launches;
  };
  EXPECT_EQ(launches(Plain()), launches(in_sequence()) + 2);
}

TEST(LinearRelu, LinearLaunchesAtOnce) {
  const nn::Linear layer(3, 3);
  const Tensor x = ones({2, 3});
  Tensor h;
  EXPECT_EQ(launches_of([&] { h = layer(x); }), Names{"matmul"});
  EXPECT_EQ(launches_of([&] { h = relu(std::move(h)); }), Names{"pointwise"});
  EXPECT_EQ(launches_of([&] { h = linear_relu(x, layer.weight, layer.bias); }), Names{"matmul"});
}

TEST(LinearRelu, ConvolutionsInASequentialTakeTheReluToo) {
  const nn::Sequential images(nn::Conv2d(2, 3, 3, {.padding = 1}), nn::ReLU());
  const nn::Sequential sequences(nn::Conv1d(2, 3, 3, {.bias = false}), nn::ReLU(), nn::Conv1d(3, 3, 1), nn::ReLU());
  const Tensor image = randn({2, 2, 5, 4});
  const Tensor sequence = randn({2, 2, 9});
  Tensor y;
  EXPECT_EQ(launches_of([&] { y = images(image); }), Names{"conv"});
  EXPECT_EQ(y.to_vector<float>(), images.get<nn::Conv2d>(0)(image).relu().to_vector<float>());
  EXPECT_EQ(launches_of([&] { y = sequences(sequence); }), (Names{"conv", "conv"}));
  const Tensor between = sequences.get<nn::Conv1d>(0)(sequence).relu();
  EXPECT_EQ(y.to_vector<float>(), sequences.get<nn::Conv1d>(2)(between).relu().to_vector<float>());
}

TEST(LinearRelu, OverwritesTheResultOfTheLayer) {
  const nn::Linear layer(3, 3);
  Tensor h = layer(ones({2, 3}));
  const void* const memory = h.raw().data();
  const Tensor y = relu(std::move(h));
  EXPECT_EQ(y.raw().data(), memory);
  EXPECT_FALSE(h.defined());  // NOLINT(bugprone-use-after-move)
}

TEST(LinearRelu, LeavesAResultAloneThatIsStillInUse) {
  const nn::Linear layer(3, 3);
  const Tensor h = layer(randn({2, 3}));
  const std::vector<float> before = h.to_vector<float>();
  Tensor second = h;
  Tensor unused = relu(std::move(second));
  Tensor part = layer(ones({2, 3}));
  const Tensor constant = part.detach();
  const std::vector<float> kept = constant.to_vector<float>();
  unused = relu(std::move(part));
  EXPECT_EQ(h.to_vector<float>(), before);
  EXPECT_EQ(constant.to_vector<float>(), kept);
}

TEST(LinearRelu, LetsNaNThrough) {
  const nn::Linear layer(2, 2);
  const Tensor x = full({1, 2}, std::nan("")).requires_grad_();
  const Tensor y = relu(layer(x));
  EXPECT_TRUE(std::isnan(y[0][0].item<float>()));
  y.sum().backward();
  EXPECT_EQ(layer.bias.grad().to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST(LinearRelu, GivesTheBitsOfTheTwoOps) {
  TANDEM_SKIP_ON_GPU("in 16 bits the library rounds in another order");
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const std::int64_t rows : {0, 1, 7, 64}) {
      Plain net(dtype);
      const std::vector<Tensor> p = net.parameters();
      const Tensor x = randn({rows, 6}).to(dtype);
      const Tensor left = x.clone().requires_grad_();
      const Tensor right = x.clone().requires_grad_();
      const Tensor joined = net(left);
      const Tensor h1 = linear(right, p[0], p[1]);
      const Tensor h2 = linear(h1.relu(), p[2]);
      const Tensor apart = linear(h2.relu(), p[3], p[4]);
      EXPECT_EQ(joined.to_vector<double>(), apart.to_vector<double>());
      (joined * joined).sum().backward();
      const auto gradients = test::gradients_of(net);
      net.zero_grad();
      (apart * apart).sum().backward();
      EXPECT_EQ(test::gradients_of(net), gradients) << dtype << " " << rows;
      EXPECT_EQ(left.grad().to_vector<double>(), right.grad().to_vector<double>());
    }
  }
}

// ---- other users of the result ----

// ReLU, which joins the node of the layer if it may, or as an op of its own.
struct Activation {
  bool joins;
  Tensor operator()(Tensor x) const { return joins ? relu(std::move(x)) : x.relu(); }
};

// A model with one layer.
struct Body : nn::Module<Body> {
  using Forward = std::function<Tensor(const nn::Linear& fc, const Tensor& x, const Activation& act)>;
  explicit Body(Forward f) : run(std::move(f)) {}
  Tensor forward(const Tensor& x, bool joins) const { return run(fc, x, {joins}); }
  Forward run;
  nn::Linear fc = child("fc", nn::Linear(5, 5));
};

const Body::Forward kForwards[] = {
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) { return act(fc(x)); },
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) { return act(act(fc(x))); },
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) { return act(fc(act(fc(x)))); },
    // Other ops use the product, before and after the ReLU.
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      Tensor h = fc(x);
      return act(h) + h;
    },
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      Tensor h = fc(x);
      const Tensor other = h;
      const Tensor a = act(std::move(h));
      return a * other + act(other);
    },
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      const Tensor h = fc(x);
      return h.exp() + act(h);
    },
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      Tensor h = fc(x);
      const Tensor part = h.narrow(1, 0, 2);
      return act(std::move(h)).sum() + part.sum();
    },
    // Several products at once.
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      Tensor a = fc(x);
      Tensor b = fc(x * 2);
      Tensor c = fc(x * 3);
      return act(std::move(b)) - act(std::move(a)) * c;
    },
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) { return act(fc(x)) * act(fc(x)); },
    // In place.
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      Tensor h = fc(x);
      h.add_(0.25);
      return act(std::move(h));
    },
    [](const nn::Linear& fc, const Tensor& x, const Activation&) {
      Tensor h = fc(x);
      h.relu_();
      return fc(h);
    },
    // Hooks and retain_grad.
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      Tensor h = fc(x);
      if (h.requires_grad()) {
        h.register_hook([](const Tensor& g) { return g * 2; });
      }
      return act(std::move(h));
    },
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      Tensor y = act(fc(x));
      if (y.requires_grad()) {
        y.retain_grad();
        y.register_hook([](const Tensor& g) { return g + 1; });
      }
      return fc(y);
    },
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      Tensor h = fc(x);
      if (h.requires_grad()) {
        h.retain_grad();
      }
      return act(std::move(h));
    },
    // A backward pass before the ReLU.
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      Tensor h = fc(x);
      h.sum().backward({}, true);
      return act(std::move(h));
    },
    // A consumer that is gone, and one that remains without its result.
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      Tensor h = fc(x);
      {
        const Tensor gone = h * h;
      }
      const Tensor other = h.sum();
      return act(std::move(h)) + other;
    },
    // Constants.
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      Tensor h = fc(x).detach();
      {
        const NoGradGuard no_grad;
        h.add_(0.5);
      }
      return act(std::move(h)) + fc(x);
    },
    // Gradients off for one of the two.
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      Tensor h;
      {
        const NoGradGuard no_grad;
        h = fc(x);
      }
      return act(std::move(h)) + fc(x);
    },
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      Tensor h = fc(x);
      Tensor a;
      {
        const NoGradGuard no_grad;
        a = act(std::move(h));
      }
      return a + fc(x);
    },
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) { return act(fc(x).detach()) + fc(x); },
    // Other shapes.
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) { return act(fc(x.reshape({1, 4, 5}))); },
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      return act(fc(x.narrow(0, 0, 0))).sum() + fc(x[0]).sum();
    },
    [](const nn::Linear& fc, const Tensor& x, const Activation& act) {
      return act(fc(x[0])) + act(linear(x, fc.weight));
    },
};

TEST(LinearRelu, OtherUsersSeeNoDifference) {
  manual_seed(6);
  for (const Body::Forward& forward : kForwards) {
    const Body body(forward);
    const Tensor x = randn({4, 5});
    std::vector<std::vector<std::vector<double>>> all;
    for (const bool joins : {false, true}) {
      const Tensor input = x.clone().requires_grad_();
      const Tensor y = body(input, joins);
      all.push_back({y.to_vector<double>()});
      y.sum().backward();
      all.back().push_back(input.grad().to_vector<double>());
      for (auto& gradient : test::gradients_of(body)) {
        all.back().push_back(std::move(gradient));
      }
      for (Tensor& p : body.parameters()) {
        p.zero_grad();
      }
    }
    EXPECT_EQ(all[1], all[0]) << "forward " << (&forward - kForwards);
  }
}

TEST(LinearRelu, AChangeWithoutARecordIsTheSameError) {
  const nn::Linear layer(3, 3);
  const auto error = [&](bool joins) {
    Tensor h = layer(ones({2, 3}));
    {
      const NoGradGuard no_grad;
      h.add_(1);
    }
    return test::message_of<AutogradError>([&] { Activation{joins}(std::move(h)).sum().backward(); });
  };
  EXPECT_EQ(error(true), error(false));
}

TEST(LinearRelu, WorksInReplicas) {
  const nn::Linear layer(5, 5);
  const Tensor x = randn({4, 5});
  Tensor weight = randn({5, 5}).requires_grad_();
  core::Frame frame;
  frame.bind(layer.weight, weight);
  std::vector<std::vector<float>> gradients;
  for (const bool joins : {false, true}) {
    const core::FrameScope scope(frame);
    Activation{joins}(layer(x)).sum().backward();
    gradients.push_back(weight.grad().to_vector<float>());
    weight.zero_grad();
  }
  EXPECT_EQ(gradients[1], gradients[0]);
}

TEST(LinearRelu, AnotherThreadMayApplyTheRelu) {
  const nn::Linear layer(5, 5);
  const Tensor x = randn({4, 5});
  const std::vector<float> expected = layer(x).relu().to_vector<float>();
  Tensor h = layer(x);
  Tensor y;
  std::thread([&] { y = relu(std::move(h)); }).join();
  EXPECT_EQ(y.to_vector<float>(), expected);
  y.sum().backward();
  EXPECT_TRUE(layer.weight.grad().defined());
}

TEST(LinearRelu, OtherThreadsMayReadTheResult) {
  const nn::Linear layer(5, 5);
  const Tensor x = randn({4, 5});
  for (int i = 0; i < 50; ++i) {
    Tensor h = layer(x);
    std::vector<float> seen[4];
    std::vector<std::thread> threads;
    for (auto& values : seen) {
      threads.emplace_back([h, &values] { values = h.to_vector<float>(); });
    }
    const Tensor y = relu(std::move(h));
    for (std::thread& thread : threads) {
      thread.join();
    }
    const Tensor plain = layer(x);
    EXPECT_EQ(y.to_vector<float>(), plain.relu().to_vector<float>());
  }
}

// Traces and errors name the layer that launches.
TEST(LinearRelu, LaunchesBelongToTheirModules) {
  class Paths final : public kernels::LaunchObserver {
   public:
    void on_launch(kernels::Context&, const kernels::LaunchRecord& record) override {
      const core::ModuleScope* scope = core::thread_state().scope;
      seen.push_back(std::string(record.name) + " " + (scope != nullptr ? scope->path : "-"));
    }
    Names seen;
  };
  const Plain plain;
  const Tensor x = ones({2, 6});
  Paths paths;
  {
    const test::ObserverScope scope(&paths);
    plain(x);
  }
  EXPECT_THAT(paths.seen, ElementsAre("matmul fc1", "pointwise ", "matmul fc2", "pointwise act", "matmul fc3"));
}

}  // namespace
}  // namespace tandem

#include <tandem/tensor/frame.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/thread_pool.h>
#include <tandem/nn/container.h>
#include <tandem/nn/functional.h>
#include <tandem/optim/sgd.h>

#include "models.h"
#include "support/memory.h"
#include "support/message.h"

// Tests of replicas: one module on several threads, each with parameters of its own.

namespace tandem {
namespace {

using core::Frame;
using core::FrameScope;
using test::memory_of;
using test::message_of;
using test::Mixed;
using test::Mlp;

using Values = std::vector<double>;

constexpr int kPasses = 100;

// A frame that binds every parameter to a new leaf with other values.
struct Replica {
  Frame frame;
  std::vector<Tensor> parameters;

  Replica(const nn::ModuleBase& module, double factor, Device device = core::thread_state().device) {
    for (const Tensor& slot : module.parameters()) {
      parameters.push_back((slot.detach() * factor).to(device));
      parameters.back().requires_grad_();
      frame.bind(slot, parameters.back());
    }
  }
};

// The arithmetic of Mlp without a module.
Tensor by_hand(const std::vector<Tensor>& p, const Tensor& x) { return linear(linear_relu(x, p[0], p[1]), p[2], p[3]); }

std::vector<Values> gradients(const std::vector<Tensor>& parameters) {
  std::vector<Values> all;
  for (const Tensor& p : parameters) {
    all.push_back(p.grad().to_vector<double>());
  }
  return all;
}

std::vector<Values> gradients_by_hand(const Replica& replica, const Tensor& x) {
  std::vector<Tensor> copies;
  for (const Tensor& p : replica.parameters) {
    copies.push_back(p.detach().clone().requires_grad_());
  }
  by_hand(copies, x).sum().backward();
  return gradients(copies);
}

TEST(Frame, StandsInForSlotsWhileItIsActive) {
  const Mlp model;
  const Tensor x = randn({2, 4});
  Replica replica(model, 3);
  const Values outside = model(x).to_vector<double>();
  {
    const FrameScope scope(replica.frame);
    EXPECT_EQ(model(x).to_vector<double>(), by_hand(replica.parameters, x).to_vector<double>());
    EXPECT_EQ(memory_of(model.fc1.weight), memory_of(replica.parameters[0]));
    EXPECT_EQ(core::thread_state().frame, &replica.frame);
  }
  EXPECT_EQ(model(x).to_vector<double>(), outside);
  EXPECT_EQ(core::thread_state().frame, nullptr);
}

TEST(Frame, GradientsGoToWhatStoodIn) {
  const Mlp model;
  const Tensor x = randn({2, 4});
  Replica replica(model, 3);
  Tensor loss;
  {
    const FrameScope scope(replica.frame);
    loss = model(x).sum();
  }
  loss.backward();  // outside the frame: the graph holds tensors, not slots
  EXPECT_EQ(gradients(replica.parameters), gradients_by_hand(replica, x));
  for (const Tensor& p : model.parameters()) {
    EXPECT_FALSE(p.grad().defined());
  }
}

TEST(Frame, MayBindResultsOfOps) {
  const Mlp model;
  const Tensor x = randn({2, 4});
  Frame frame;
  std::vector<Tensor> sent;
  for (const Tensor& slot : model.parameters()) {
    sent.push_back(slot * 2);  // recorded: the gradient flows back to the slot
    frame.bind(slot, sent.back());
  }
  Tensor loss;
  {
    const FrameScope scope(frame);
    loss = model(x).sum();
  }
  loss.backward();
  std::vector<Tensor> copies;
  std::vector<Tensor> doubled;
  for (const Tensor& p : model.parameters()) {
    copies.push_back(p.detach().clone().requires_grad_());
    doubled.push_back(copies.back() * 2);
  }
  by_hand(doubled, x).sum().backward();
  EXPECT_EQ(gradients(model.parameters()), gradients(copies));
}

TEST(Frame, InnerOnesFallBackToOuterOnes) {
  const Mlp model;
  const Tensor x = randn({2, 4});
  Replica outer(model, 3);
  Frame inner;
  const Tensor bias = full({3}, 7.0);
  inner.bind(model.fc2.bias, bias);
  const FrameScope outer_scope(outer.frame);
  {
    const FrameScope inner_scope(inner);
    std::vector<Tensor> expected = outer.parameters;
    expected[3] = bias;
    EXPECT_EQ(model(x).to_vector<double>(), by_hand(expected, x).to_vector<double>());
  }
  EXPECT_EQ(model(x).to_vector<double>(), by_hand(outer.parameters, x).to_vector<double>());
}

TEST(Frame, BuffersAreSlotsToo) {
  Mixed model;
  Frame frame;
  const Tensor mean = full({2}, 5.0);
  frame.bind(model.mean, mean);
  EXPECT_EQ(frame.size(), 1u);
  {
    const FrameScope scope(frame);
    EXPECT_EQ(model.mean.to_vector<double>(), (Values{5, 5}));
    model.mean.add_(1.0);
  }
  EXPECT_EQ(model.mean.to_vector<double>(), (Values{0, 0}));
  EXPECT_EQ(mean.to_vector<double>(), (Values{6, 6}));
}

TEST(Frame, KeepsWhatItBinds) {
  const Mlp model;
  Frame frame;
  frame.bind(model.fc2.bias, full({3}, 4.0));
  const FrameScope scope(frame);
  EXPECT_EQ(model.fc2.bias.to_vector<double>(), (Values{4, 4, 4}));
}

TEST(Frame, ModulesAndOptimizersWorkOnTheSlotsThemselves) {
  const Mlp model;
  optim::SGD sgd(model.parameters(), {.lr = 1});
  model(ones({1, 4})).sum().backward();
  const Values before = model.fc2.bias.to_vector<double>();
  Replica replica(model, 3);
  {
    const FrameScope scope(replica.frame);
    EXPECT_EQ(model.parameters()[0].unresolved(), model.fc1.weight.unresolved());
    sgd.step();
  }
  EXPECT_NE(model.fc2.bias.to_vector<double>(), before);
}

TEST(Frame, WrongBindingsAreErrors) {
  const Mlp model;
  Frame frame;
  EXPECT_EQ(message_of<ConfigError>([&] { frame.bind(zeros({1}), zeros({1})); }),
            "Frame::bind: only parameters and buffers of a module can be bound");
  EXPECT_THROW(frame.bind(Tensor(), zeros({1})), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([&] { frame.bind(model.fc1.bias, model.fc1.bias); }),
            "Frame::bind: the value must be a plain tensor, not itself a slot");
  EXPECT_THROW(frame.bind(model.fc1.bias, Tensor()), ConfigError);
}

TEST(Frame, IsActiveOnOneThreadAtATime) {
  Frame frame;
  const FrameScope scope(frame);
  EXPECT_EQ(message_of<ConfigError>([&] { const FrameScope again(frame); }),
            "Frame: already active; each replica thread needs a frame of its own");
  std::string text;
  std::jthread([&] { text = message_of<ConfigError>([&] { const FrameScope there(frame); }); }).join();
  EXPECT_EQ(text, "Frame: already active; each replica thread needs a frame of its own");
}

// ---- threads ----

TEST(FrameThreads, TwoReplicasOfOneModule) {
  const Mlp model;
  const Tensor x = randn({6, 4});
  Replica first(model, 2);
  Replica second(model, -1.5, "cpu:1");
  const auto run = [&](Replica& replica) {
    const Tensor mine = x.to(replica.parameters[0].device());
    const auto expected = by_hand(replica.parameters, mine).to_vector<double>();
    for (int pass = 0; pass < kPasses; ++pass) {
      for (const Tensor& p : replica.parameters) {
        p.zero_grad();
      }
      Tensor out;
      {
        const FrameScope scope(replica.frame);
        out = model(mine);
      }
      EXPECT_EQ(out.to_vector<double>(), expected);
      out.sum().backward();
    }
  };
  {
    const std::jthread one([&] { run(first); });
    const std::jthread two([&] { run(second); });
    for (int pass = 0; pass < kPasses; ++pass) {
      EXPECT_EQ(model(x).shape(), (Shape{6, 3})) << "without a frame it is the module itself";
    }
  }
  EXPECT_EQ(gradients(first.parameters), gradients_by_hand(first, x));
  EXPECT_EQ(gradients(second.parameters), gradients_by_hand(second, x.to("cpu:1")));
  for (const Tensor& p : model.parameters()) {
    EXPECT_FALSE(p.grad().defined());
  }
}

TEST(FrameThreads, SequentialsAndFusedLayers) {
  const nn::Sequential model(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 3));
  const Tensor x = randn({6, 4});
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int i = 0; i < 3; ++i) {
    replicas.push_back(std::make_unique<Replica>(model, i + 1.5));
  }
  {
    std::vector<std::jthread> threads;
    for (auto& replica : replicas) {
      threads.emplace_back([&] {
        const FrameScope scope(replica->frame);
        for (int pass = 0; pass < kPasses; ++pass) {
          EXPECT_EQ(model(x).to_vector<double>(), by_hand(replica->parameters, x).to_vector<double>());
        }
        model(x).sum().backward();  // this time inside the frame
      });
    }
  }
  for (const auto& replica : replicas) {
    EXPECT_EQ(gradients(replica->parameters), gradients_by_hand(*replica, x));
  }
}

// The replicas' losses are joined on one device. Their gradients are summed into the module.
TEST(FrameThreads, RecordedReplicasAddUpInTheModule) {
  const Mlp model;
  const Tensor x = randn({8, 4});
  std::vector<Tensor> outputs(2);
  std::vector<std::unique_ptr<Frame>> frames;
  for (int i = 0; i < 2; ++i) {
    frames.push_back(std::make_unique<Frame>());
    for (const Tensor& slot : model.parameters()) {
      frames.back()->bind(slot, slot.to(Device(DeviceType::cpu, i)) * 1);
    }
  }
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        const FrameScope scope(*frames[static_cast<std::size_t>(i)]);
        outputs[static_cast<std::size_t>(i)] =
            model(x.narrow(0, 4 * i, 4).to(Device(DeviceType::cpu, i))).to(x.device());
      });
    }
  }
  cat(outputs).sum().backward();
  const auto got = gradients(model.parameters());
  for (const Tensor& p : model.parameters()) {
    p.zero_grad();
  }
  model(x).sum().backward();
  const auto expected = gradients(model.parameters());
  for (std::size_t i = 0; i < got.size(); ++i) {
    for (std::size_t j = 0; j < got[i].size(); ++j) {
      EXPECT_NEAR(got[i][j], expected[i][j], 1e-5);
    }
  }
}

}  // namespace
}  // namespace tandem

#include <barrier>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/autograd/parameter.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/nn/linear.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/frame.h>

#include "support/memory.h"
#include "support/message.h"

namespace tandem::core {
namespace {

using test::memory_of;
using test::message_of;
using Floats = std::vector<float>;

TEST(Frame, StandsInForASlotWhileActive) {
  const Parameter slot(tensor({1.0, 2.0}));
  const Tensor value = tensor({10.0, 20.0});
  Frame frame;
  frame.bind(slot, value);
  EXPECT_EQ(frame.size(), 1u);
  EXPECT_EQ(slot.to_vector<float>(), (Floats{1, 2})) << "not active yet";
  {
    const FrameScope scope(frame);
    EXPECT_EQ(slot.to_vector<float>(), (Floats{10, 20}));
    EXPECT_EQ((slot * 2.0).to_vector<float>(), (Floats{20, 40}));
    EXPECT_EQ(memory_of(slot), memory_of(value));
  }
  EXPECT_EQ(slot.to_vector<float>(), (Floats{1, 2}));
}

TEST(Frame, ShapeTypeAndDeviceAreTheStandInsToo) {
  const Parameter slot(zeros({2}));
  Frame frame;
  frame.bind(slot, zeros({3, 4}, {.dtype = DType::f64, .device = "cpu:1"}));
  const FrameScope scope(frame);
  EXPECT_EQ(slot.shape(), (Shape{3, 4}));
  EXPECT_EQ(slot.dtype(), DType::f64);
  EXPECT_EQ(slot.device(), Device("cpu:1"));
}

TEST(Frame, HandlesOfASlotAreTheSlot) {
  const Parameter slot(tensor({1.0}));
  const Tensor handle = slot;
  const Tensor detached = slot.detach();
  Frame frame;
  frame.bind(handle, tensor({5.0}));
  const FrameScope scope(frame);
  EXPECT_EQ(handle.item(), 5);
  EXPECT_EQ(slot.item(), 5);
  EXPECT_EQ(detached.item(), 1) << "a plain tensor is no slot";
}

TEST(Frame, OtherSlotsStayAsTheyAre) {
  const Parameter bound(tensor({1.0}));
  const Parameter free(tensor({2.0}));
  Frame frame;
  frame.bind(bound, tensor({5.0}));
  const FrameScope scope(frame);
  EXPECT_EQ(free.item(), 2);
}

TEST(Frame, BuffersAreSlotsToo) {
  const Buffer buffer(tensor({1, 2}));
  Frame frame;
  frame.bind(buffer, tensor({3, 4}));
  const FrameScope scope(frame);
  EXPECT_EQ(buffer.to_vector<float>(), (Floats{3, 4}));
}

TEST(Frame, InnerFramesComeFirst) {
  const Parameter a(tensor({1.0}));
  const Parameter b(tensor({2.0}));
  Frame outer;
  Frame inner;
  outer.bind(a, tensor({10.0}));
  outer.bind(b, tensor({20.0}));
  inner.bind(a, tensor({100.0}));
  {
    const FrameScope first(outer);
    {
      const FrameScope second(inner);
      EXPECT_EQ(a.item(), 100);
      EXPECT_EQ(b.item(), 20) << "what the inner one does not bind, the outer one does";
    }
    EXPECT_EQ(a.item(), 10);
  }
  EXPECT_EQ(a.item(), 1);
}

TEST(Frame, BindingAgainReplaces) {
  const Parameter slot(tensor({1.0}));
  Frame frame;
  frame.bind(slot, tensor({2.0}));
  const FrameScope scope(frame);
  EXPECT_EQ(slot.item(), 2);
  frame.bind(slot, tensor({3.0}));
  EXPECT_EQ(slot.item(), 3);
  EXPECT_EQ(frame.size(), 1u);
}

TEST(Frame, MayBeUsedAgainAndAfterAnException) {
  const Parameter slot(tensor({1.0}));
  Frame frame;
  frame.bind(slot, tensor({2.0}));
  try {
    const FrameScope scope(frame);
    throw Error("out");
  } catch (const Error&) {
    EXPECT_EQ(slot.item(), 1);
  }
  const FrameScope scope(frame);
  EXPECT_EQ(slot.item(), 2);
}

TEST(Frame, KeepsItsStandInAlive) {
  const Parameter slot(tensor({1.0}));
  Frame frame;
  {
    const Tensor value = tensor({2.0});
    frame.bind(slot, value);
  }
  const FrameScope scope(frame);
  EXPECT_EQ(slot.item(), 2);
}

TEST(Frame, RefusesWhatIsNoSlotOrNoValue) {
  const Parameter slot(tensor({1.0}));
  Frame frame;
  EXPECT_EQ(message_of<ConfigError>([&] { frame.bind(tensor({1.0}), tensor({2.0})); }),
            "Frame::bind: only parameters and buffers of a module can be bound");
  EXPECT_THROW(frame.bind(Tensor(), tensor({2.0})), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([&] { frame.bind(slot, slot); }),
            "Frame::bind: the value must be a plain tensor, not itself a slot");
  EXPECT_THROW(frame.bind(slot, Tensor()), ConfigError);
  EXPECT_EQ(frame.size(), 0u);
}

TEST(Frame, IsActiveOnOneThreadAtATime) {
  const Parameter slot(tensor({1.0}));
  Frame frame;
  frame.bind(slot, tensor({2.0}));
  const FrameScope scope(frame);
  const std::string text = "Frame: already active; each replica thread needs a frame of its own";
  EXPECT_EQ(message_of<ConfigError>([&] { const FrameScope again(frame); }), text);
  std::jthread([&] {
    EXPECT_EQ(message_of<ConfigError>([&] { const FrameScope elsewhere(frame); }), text);
    EXPECT_EQ(slot.item(), 1) << "frames are a thread's own";
  }).join();
  EXPECT_EQ(slot.item(), 2) << "still active";
}

// Concurrent replicas of one module: each thread sees its own values and collects its own gradients.
TEST(Frame, TwoThreadsSeeTheirOwnValuesOfOneSlot) {
  const nn::Linear layer(4, 3);
  constexpr int kReplicas = 3;
  std::barrier meet(kReplicas);
  std::vector<Tensor> weights;
  std::vector<Tensor> biases;
  for (int r = 0; r < kReplicas; ++r) {
    const auto device = Device(DeviceType::cpu, r);
    weights.push_back(full({3, 4}, r + 1.0, {.device = device, .requires_grad = true}));
    biases.push_back(full({3}, 10.0 * r, {.device = device, .requires_grad = true}));
  }
  {
    std::vector<std::jthread> replicas;
    for (int r = 0; r < kReplicas; ++r) {
      replicas.emplace_back([&, r] {
        const auto at = static_cast<std::size_t>(r);
        Frame frame;
        frame.bind(layer.weight, weights[at]);
        frame.bind(layer.bias, biases[at]);
        const FrameScope scope(frame);
        const Tensor x = ones({2, 4}, {.device = Device(DeviceType::cpu, r)});
        meet.arrive_and_wait();
        for (int round = 0; round < 200; ++round) {
          const Tensor y = layer(x);
          EXPECT_EQ(y.to_vector<float>(), Floats(6, static_cast<float>(4 * (r + 1) + 10 * r)));
          y.sum().backward();
        }
      });
    }
  }
  for (const Tensor& weight : weights)
    EXPECT_EQ(weight.grad().to_vector<float>(), Floats(12, 400));
  for (const Tensor& bias : biases)
    EXPECT_EQ(bias.grad().to_vector<float>(), Floats(3, 400));
  EXPECT_FALSE(layer.weight.grad().defined()) << "the module's own parameter took no part";
}

TEST(Frame, TravelsWithTheThreadState) {
  const Parameter slot(tensor({1.0}));
  Frame frame;
  frame.bind(slot, tensor({2.0}));
  double in_helper = 0;
  {
    const FrameScope scope(frame);
    std::jthread([&, state = thread_state()] {
      const ThreadStateScope carried(state);
      in_helper = slot.item();
    }).join();
  }
  EXPECT_EQ(in_helper, 2) << "a helper works for the replica";
}

// The backward pass uses the saved stand-in instead of the slot, because the frame may be gone by then.
TEST(Frame, BackwardAfterTheFrameEndedUsesTheStandIn) {
  const Parameter slot(tensor({1.0, 1.0}));
  Tensor value = tensor({3.0, 4.0}).requires_grad_();
  Frame frame;
  frame.bind(slot, value);
  Tensor y;
  {
    const FrameScope scope(frame);
    y = (slot * slot).sum();
  }
  y.backward();
  EXPECT_EQ(value.grad().to_vector<float>(), (Floats{6, 8}));
  EXPECT_FALSE(slot.grad().defined());
}

TEST(Frame, ChangesInPlaceReachTheStandIn) {
  Parameter slot(tensor({1.0}));
  const Tensor value = tensor({2.0});
  Frame frame;
  frame.bind(slot, value);
  {
    const FrameScope scope(frame);
    const NoGradGuard no_grad;
    slot.add_(5);
  }
  EXPECT_EQ(value.item(), 7);
  EXPECT_EQ(slot.item(), 1);
}

}  // namespace
}  // namespace tandem::core

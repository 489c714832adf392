#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>

#include "leaves.h"
#include "support/message.h"
#include "support/thread_count.h"

// Backward passes over several logical devices, with one lane per device. The calling thread runs one of the lanes.

namespace tandem {
namespace {

using test::leaf;
using test::message_of;
using test::values;
using ::testing::HasSubstr;

using Values = std::vector<double>;

constexpr int kRepeats = 200;

// A batch on cpu:0 is split into three parts. Each part runs through its own layers on its own device, and the results
// are joined on cpu:0.
struct Split {
  Tensor x = leaf({9, 8});
  std::vector<Device> devices{"cpu:0", "cpu:1", "cpu:2"};
  std::vector<Tensor> weights;

  explicit Split(int layers = 3) {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      for (int k = 0; k < layers; ++k) {
        weights.push_back(values({8, 8}, -1, 1, 20 + i * 10 + static_cast<std::size_t>(k)).to(devices[i]));
        weights.back().requires_grad_();
      }
    }
  }
  std::size_t layers() const { return weights.size() / devices.size(); }

  Tensor loss(const std::function<void(std::size_t part, const Tensor&)>& see = {}) const {
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      Tensor h = x.narrow(0, 3 * static_cast<std::int64_t>(i), 3).to(devices[i]);
      for (std::size_t k = 0; k < layers(); ++k) {
        h = linear_relu(h, weights[i * layers() + k]) + h;
      }
      if (see) see(i, h);
      parts.push_back(h.to("cpu:0"));
    }
    const Tensor joined = cat(parts);
    return (joined * joined).mean();
  }

  void zero_grad() const {
    x.zero_grad();
    for (const Tensor& w : weights)
      w.zero_grad();
  }
  std::vector<Values> gradients() const {
    std::vector<Values> all{x.grad().to_vector<double>()};
    for (const Tensor& w : weights)
      all.push_back(w.grad().to_vector<double>());
    return all;
  }
};

TEST(SeveralDevices, GiveTheGradientsOfOne) {
  Split split;
  split.loss().backward();
  Split one;
  for (Tensor& w : one.weights) {
    w = w.detach().to("cpu:0");
    w.requires_grad_();
  }
  one.devices = {"cpu:0", "cpu:0", "cpu:0"};
  one.loss().backward();
  EXPECT_EQ(split.gradients(), one.gradients());
  for (std::size_t i = 0; i < split.weights.size(); ++i) {
    EXPECT_EQ(split.weights[i].grad().device(), split.weights[i].device());
  }
}

TEST(SeveralDevices, GiveTheSameBitsEveryTime) {
  const Split split;
  split.loss().backward();
  const std::vector<Values> first = split.gradients();
  for (int i = 0; i < kRepeats; ++i) {
    split.zero_grad();
    split.loss().backward();
    ASSERT_EQ(split.gradients(), first) << "repeat " << i;
  }
}

// The ops of each lane are large enough to be cut into chunks for the one pool.
TEST(SeveralDevices, ShareThePoolAndItsBits) {
  const auto run = [](int threads) {
    const test::ThreadCount count(threads);
    const Tensor x = leaf({300, 300});
    std::vector<Tensor> parts;
    for (const Device device : {Device("cpu:0"), Device("cpu:1"), Device("cpu:2")}) {
      const Tensor here = x.to(device);
      parts.push_back((matmul(here, here).relu() * here).to("cpu:0"));
    }
    cat(parts).sum().backward();
    return x.grad().to_vector<double>();
  };
  const Values one = run(1);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(run(3), one);
    ASSERT_EQ(run(2), one);
  }
}

// The threads on which each device's part ran. With `meet`, each part waits for the others.
std::map<std::size_t, std::thread::id> threads_of_backward(bool meet) {
  const Split split;
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<std::size_t, std::thread::id> ran_on;
  const Tensor loss = split.loss([&](std::size_t part, const Tensor& h) {
    h.register_hook([&, part](const Tensor& g) {
      std::unique_lock lock(mutex);
      ran_on[part] = std::this_thread::get_id();
      EXPECT_EQ(g.device(), split.devices[part]);
      EXPECT_FALSE(is_grad_enabled());
      arrived.notify_all();
      EXPECT_TRUE(!meet || arrived.wait_for(lock, std::chrono::seconds(20), [&] { return ran_on.size() == 3; }));
      return Tensor();
    });
  });
  loss.backward();
  return ran_on;
}

TEST(SeveralDevices, WorkAtTheSameTimeWhereThereAreThreads) {
  const test::ThreadCount threads(3);
  const auto ran_on = threads_of_backward(true);
  ASSERT_EQ(ran_on.size(), 3U);
  EXPECT_EQ(ran_on.at(0), std::this_thread::get_id()) << "the caller works for the device of its root";
  EXPECT_NE(ran_on.at(1), ran_on.at(0));
  EXPECT_NE(ran_on.at(2), ran_on.at(0));
  EXPECT_NE(ran_on.at(1), ran_on.at(2));
}

TEST(SeveralDevices, NeedNoThreadsOfTheirOwn) {
  const test::ThreadCount threads(1);
  const auto ran_on = threads_of_backward(false);
  ASSERT_EQ(ran_on.size(), 3U);
  for (const auto& [part, thread] : ran_on) {
    EXPECT_EQ(thread, std::this_thread::get_id());
  }
}

TEST(SeveralDevices, PassThroughOneAfterTheOther) {
  const Tensor x = leaf({4});
  Tensor y = x;
  for (int i = 0; i < 60; ++i) {
    y = y.to(Device(DeviceType::cpu, (i + 1) % 4)) * 1.0;
  }
  for (int i = 0; i < 20; ++i) {
    x.zero_grad();
    y.sum().backward({}, true);
    ASSERT_EQ(x.grad().to_vector<double>(), Values(4, 1.0));
  }
}

TEST(SeveralDevices, CrossBackAndForth) {
  const Tensor a = leaf({5});
  const Tensor b = leaf({5}, -1, 1, 8).detach().to("cpu:1").requires_grad_();
  const auto run = [&] {
    Tensor u = a;
    Tensor v = b;
    for (int i = 0; i < 15; ++i) {
      const Tensor next = u * 0.5 + v.to(a.device()) * 0.25;
      v = v * 0.5 + u.to("cpu:1") * 0.25;
      u = next;
    }
    return (u + v.to(a.device())).sum();
  };
  run().backward();
  const Values first = a.grad().to_vector<double>();
  const Values second = b.grad().to_vector<double>();
  for (int i = 0; i < kRepeats / 2; ++i) {
    a.zero_grad();
    b.zero_grad();
    run().backward();
    ASSERT_EQ(a.grad().to_vector<double>(), first);
    ASSERT_EQ(b.grad().to_vector<double>(), second);
  }
  EXPECT_NEAR(first[0], std::pow(0.75, 15), 1e-12);
  EXPECT_NEAR(second[0], std::pow(0.75, 15), 1e-12);
}

TEST(SeveralDevices, ALossThatIsNotOnTheFirstDevice) {
  const Split split;
  const Tensor loss = split.loss().to("cpu:2") * 2;
  loss.backward();
  const std::vector<Values> doubled = split.gradients();
  split.zero_grad();
  (split.loss() * 2).backward();
  EXPECT_EQ(split.gradients(), doubled);
}

TEST(SeveralDevices, LeafHooksSeeCompleteGradients) {
  const Split split;
  std::atomic<int> calls{0};
  std::vector<HookHandle> handles;
  for (const Tensor& w : split.weights) {
    handles.push_back(w.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
      EXPECT_TRUE(leaf.grad().defined());
      EXPECT_EQ(leaf.grad().device(), leaf.device());
      ++calls;
    }));
  }
  handles.push_back(split.x.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; }));
  for (int i = 1; i <= 20; ++i) {
    split.loss().backward();
    EXPECT_EQ(calls, 10 * i);
  }
}

TEST(SeveralDevices, AnExceptionOnAnotherDeviceArrivesInTheCaller) {
  for (const std::size_t failing : {0u, 1u, 2u}) {
    const Split split;
    std::atomic<bool> fail{true};
    const Tensor loss = split.loss([&](std::size_t part, const Tensor& h) {
      if (part == failing) {
        h.register_hook([&](const Tensor&) -> Tensor {
          if (fail) throw ValueError("in part " + std::to_string(failing));
          return {};
        });
      }
    });
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(message_of<ValueError>([&] { loss.backward({}, true); }), "in part " + std::to_string(failing));
    }
    fail = false;
    split.zero_grad();
    loss.backward({}, true);
    const std::vector<Values> after = split.gradients();
    split.zero_grad();
    split.loss().backward();
    EXPECT_EQ(split.gradients(), after) << "failed passes leave nothing in the graph";
  }
}

TEST(SeveralDevices, ASavedValueThatChangedIsAnErrorOnItsDeviceToo) {
  const Split split;
  const Tensor loss = split.loss();
  {
    const NoGradGuard no_grad;
    Tensor handle = split.weights[7];
    handle.mul_(2.0);
  }
  EXPECT_THAT(message_of<AutogradError>([&] { loss.backward(); }),
              HasSubstr("backward of 'linear_relu': a tensor [8, 8] that it saved was changed in place since"));
}

TEST(SeveralDevices, NestedPassInAHookOfAnotherDevice) {
  const Split split;
  const Split other(1);
  const Tensor loss = split.loss([&](std::size_t part, const Tensor& h) {
    if (part == 1) {
      h.register_hook([&](const Tensor&) {
        const GradModeScope on(true);
        other.loss().backward();
        return Tensor();
      });
    }
  });
  loss.backward();
  const std::vector<Values> nested = other.gradients();
  other.zero_grad();
  other.loss().backward();
  EXPECT_EQ(other.gradients(), nested);
}

TEST(SeveralDevices, MixingThemInOneOpIsAnError) {
  const Tensor a = leaf({2});
  EXPECT_THROW(a + a.to("cpu:1"), DeviceError);
  EXPECT_THROW(cat({a, a.to("cpu:1")}), DeviceError);
  EXPECT_THROW(mse_loss(a, a.to("cpu:1")), DeviceError);
  EXPECT_THROW(a.to("cpu:999"), DeviceError);
}

}  // namespace
}  // namespace tandem

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>
#include <tandem/tensor/recorder.h>

#include "parallel/models.h"
#include "support/message.h"
#include "support/thread_count.h"

// Captured steps with DataParallel: a replay has the bits of an eager step, and computes the replicas at the same time.

namespace tandem::parallel {
namespace {

using test::cpus;
using test::message_of;
using test::NormedMlp;
using test::seeded;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

test::Batch batch_of_step(int step, std::int64_t rows) {
  const Tensor numbers = arange(0, rows * 6).reshape({rows, 6}).to(DType::f32);
  std::vector<std::int64_t> classes;
  for (std::int64_t row = 0; row < rows; ++row) {
    classes.push_back((row + step) % 3);
  }
  return {.x = sin(numbers * (1.0 + step)), .y = from_data(classes, {rows})};
}

struct Training {
  int devices = 2;
  bool loss_in_replicas = false;
  int passes = 1;              // per step
  bool on_one_device = false;  // all replicas
  std::function<std::int64_t(int step)> rows = [](int) { return 9; };
  std::function<void(int step, NormedMlp& model)> before = [](int, NormedMlp&) {};
};

// Everything that a training leaves: losses, parameters, buffers, and the next random number.
using Outcome = std::vector<std::vector<float>>;

constexpr int kSteps = 12;

// Step i is captured if is_captured(i).
Outcome train(const Training& training, const std::function<bool(int)>& is_captured) {
  NormedMlp model = seeded<NormedMlp>(DType::f32);
  const std::vector<Device> repeated(static_cast<std::size_t>(training.devices), "cpu:0");
  DataParallel dp(model, training.on_one_device ? repeated : cpus(training.devices),
                  {.allow_duplicate_devices = training.on_one_device});
  optim::Adam adam(model.parameters(), {.lr = 0.05});
  manual_seed(3);
  const auto eager = [&](const Tensor& x, const Tensor& y) {
    adam.zero_grad();
    Tensor loss;
    for (int pass = 0; pass < training.passes; ++pass) {
      const Tensor noisy = x + 0.1 * randn(x.shape());
      loss = training.loss_in_replicas
                 ? dp.loss([](const Tensor& out, const Tensor& t) { return nn::cross_entropy(out, t); }, noisy, y)
                 : nn::cross_entropy(dp(noisy), y);
      loss.backward();
    }
    adam.step();
    return loss;
  };
  auto captured = graph::capture(eager);
  Outcome outcome(1);
  int calls = 0;
  for (int i = 0; i < kSteps; ++i) {
    training.before(i, model);
    const auto [x, y] = batch_of_step(i, training.rows(i));
    calls += is_captured(i) ? 1 : 0;
    outcome[0].push_back((is_captured(i) ? captured(x, y) : eager(x, y)).detach().item<float>());
  }
  EXPECT_EQ(captured.stats().replayed > 0, calls > 0) << captured.stats().last_reason;
  for (const Tensor& parameter : model.parameters()) {
    outcome.push_back(parameter.detach().to_vector<float>());
  }
  for (const Tensor& buffer : model.buffers()) {
    outcome.push_back(buffer.to(DType::f32).to_vector<float>());
  }
  outcome.push_back(randn({1}).to_vector<float>());
  return outcome;
}

void expect_equal_bits(const Training& training) {
  const Outcome eager = train(training, [](int) { return false; });
  EXPECT_EQ(train(training, [](int) { return true; }), eager) << "captured";
  EXPECT_EQ(train(training, [](int i) { return i % 4 != 2; }), eager) << "captured and eager in turns";
}

class DpCapture : public ::testing::TestWithParam<std::tuple<int, int, bool>> {
 protected:
  Training training() const {
    return {.devices = std::get<0>(GetParam()), .loss_in_replicas = std::get<2>(GetParam())};
  }
  test::ThreadCount threads_{std::get<1>(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(DevicesThreadsAndLoss, DpCapture,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Values(1, 2), ::testing::Bool()));

TEST_P(DpCapture, HasTheBitsOfEagerSteps) { expect_equal_bits(training()); }

TEST_P(DpCapture, SeveralPassesInAStep) {
  Training several = training();
  several.passes = 2;
  expect_equal_bits(several);
}

TEST_P(DpCapture, BatchesOfOtherSizesAreRecordedApart) {
  Training uneven = training();
  uneven.rows = [](int step) -> std::int64_t { return step % 3 == 2 ? 4 : 9; };
  expect_equal_bits(uneven);
}

// The replicas' tensors then have places in one block of memory.
TEST_P(DpCapture, ReplicasOnOneDevice) {
  Training together = training();
  together.on_one_device = true;
  expect_equal_bits(together);
}

TEST_P(DpCapture, FrozenParametersAreRecordedAgain) {
  Training freezing = training();
  freezing.before = [](int step, NormedMlp& model) {
    if (step == 6) {
      model.first.weight.requires_grad_(false);
    }
  };
  expect_equal_bits(freezing);
}

TEST_P(DpCapture, MovedParametersAreRecordedAgain) {
  Training moving = training();
  moving.before = [](int step, NormedMlp& model) {
    if (step == 6) {
      model.to(DType::f64);
      model.to(DType::f32);
    }
  };
  expect_equal_bits(moving);
}

struct Shifted : nn::Module<Shifted> {
  Tensor shift = buffer("shift", zeros({1}));
  Tensor forward(const Tensor& x) const { return x + shift; }
};

TEST(DpCaptureForward, SeesBuffersThatWereChangedBetweenSteps) {
  Shifted model;
  DataParallel dp(model, cpus(2));
  auto step = graph::capture([&](const Tensor& x) { return dp(x); });
  for (int i = 0; i < 8; ++i) {
    model.shift.fill_(i);
    const float value = static_cast<float>(i);
    EXPECT_EQ(step(zeros({2})).to_vector<float>(), (std::vector<float>{value, value}));
    EXPECT_EQ(dp(ones({2})).to_vector<float>(), (std::vector<float>{value + 1, value + 1}));
  }
  EXPECT_GT(step.stats().replayed, 0);
}

TEST(DpCaptureForward, FewerRowsThanDevices) {
  NormedMlp model = seeded<NormedMlp>(DType::f32);
  model.eval();
  DataParallel dp(model, cpus(3));
  auto step = graph::capture([&](const Tensor& x) { return dp(x); });
  for (int i = 0; i < 12; ++i) {
    const Tensor x = batch_of_step(i, i % 3).x;
    EXPECT_EQ(step(x).to_vector<float>(), dp(x).to_vector<float>());
  }
  EXPECT_GT(step.stats().replayed, 0);
}

TEST(DpCaptureForward, AnotherWrapperIsRecordedAnew) {
  Shifted model;
  std::optional<DataParallel<Shifted>> dp(std::in_place, model, cpus(2));
  auto step = graph::capture([&](const Tensor& x) { return (*dp)(x); });
  while (step.stats().replayed < 2) {
    step(ones({3}));
  }
  dp.emplace(model, cpus(3));
  const std::uint64_t recorded = step.stats().recorded;
  EXPECT_EQ(step(ones({3})).to_vector<float>(), (std::vector<float>{1, 1, 1}));
  EXPECT_GT(step.stats().recorded, recorded);
}

TEST(DpCaptureForward, ReplicasOfTheCallerMayBeUsed) {
  Shifted model;
  Replicas replicas(model, cpus(2));
  manual_seed(4);
  const auto eager = [&] {
    replicas.update(2);
    return parallel_apply([&](int) { return model(randn({2})); }, std::vector<std::tuple<int>>{{0}, {0}}, replicas);
  };
  auto captured = graph::capture(eager);
  const auto values = [&](bool capture) {
    manual_seed(4);
    std::vector<std::vector<float>> all;
    for (int i = 0; i < 6; ++i) {
      for (const Tensor& drawn : capture ? captured() : eager()) {
        all.push_back(drawn.to_vector<float>());
      }
    }
    return all;
  };
  EXPECT_EQ(values(true), values(false));
  EXPECT_GT(captured.stats().replayed, 0);
}

// Host work that waits until both lanes of a replay are there.
class Meeting {
 public:
  void meet() {
    tandem::detail::host_work("meet", [this] {
      if (!is_open) {
        return;
      }
      const int round = arrived++ / 2;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (arrived < 2 * round + 2 && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
      }
      met += arrived >= 2 * round + 2 ? 1 : 0;
    });
  }
  std::atomic<bool> is_open{false};
  std::atomic<int> arrived{0};
  std::atomic<int> met{0};
};

TEST(DpCaptureReplay, ComputesReplicasAtTheSameTimeForwardAndBackward) {
  const test::ThreadCount threads(2);
  nn::Linear model(2, 2);
  DataParallel dp(model, cpus(2));
  Meeting forward;
  Meeting backward;
  auto step = graph::capture([&](const Tensor& x) {
    model.zero_grad();
    const Tensor loss = dp.loss(
        [&](Tensor out, const Tensor& weight) {
          forward.meet();
          out.register_hook([&](const Tensor& gradient) {
            backward.meet();
            return gradient;
          });
          return (out * weight).sum();
        },
        x, x, Reduction::sum);
    loss.backward();
  });
  while (step.stats().replayed < 2) {
    step(ones({4, 2}));
  }
  forward.is_open = backward.is_open = true;
  step(ones({4, 2}));
  EXPECT_EQ(forward.met, 2);
  EXPECT_EQ(backward.met, 2);
}

struct Words : nn::Module<Words> {
  nn::Embedding table = child("table", nn::Embedding(5, 3));
  Tensor forward(const Tensor& x) const { return table(x); }
};

TEST(DpCaptureReplay, AFailureNamesTheReplicaAndLeavesAUsableStep) {
  for (const int threads : {1, 2}) {
    const test::ThreadCount count(threads);
    Words model = seeded<Words>(DType::f32);
    DataParallel dp(model, cpus(2));
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    const auto eager = [&](const Tensor& x, const Tensor& y) {
      sgd.zero_grad();
      Tensor loss = nn::cross_entropy(dp(x), y);
      loss.backward();
      sgd.step();
      return loss;
    };
    auto step = graph::capture(eager);
    const Tensor x = tensor<std::int64_t>({1, 2, 3, 4});
    const Tensor y = tensor<std::int64_t>({0, 1, 2, 0});
    while (step.stats().replayed < 2) {
      step(x, y);
    }
    const Tensor bad = tensor<std::int64_t>({1, 2, 3, 7});
    const std::string text = message_of<ValueError>([&] { step(bad, y); });
    EXPECT_THAT(text, StartsWith("Embedding 'table': index 7 at position 1 is outside [0, 5)"));
    EXPECT_THAT(text, EndsWith("in replica 1 of 2, on cpu:1"));
    EXPECT_EQ(text, message_of<ValueError>([&] { eager(bad, y); }));
    ASSERT_TRUE(last_failure().has_value());
    EXPECT_EQ(last_failure()->index, 1);

    const std::uint64_t replayed = step.stats().replayed;
    EXPECT_NO_THROW(step(x, y));
    EXPECT_EQ(step.stats().replayed, replayed + 1);
    EXPECT_FALSE(last_failure().has_value());
    const std::string both = message_of<ValueError>([&] { step(tensor<std::int64_t>({9, 2, 3, 7}), y); });
    EXPECT_THAT(both, HasSubstr("index 9"));
    EXPECT_EQ(last_failure()->index, 0) << "the lowest replica's failure is thrown";
  }
}

struct NormedWords : nn::Module<NormedWords> {
  nn::Embedding table = child("table", nn::Embedding(5, 3));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(3));
  Tensor forward(const Tensor& x) const { return norm(table(x)); }
};

TEST(DpCaptureReplay, AfterAFailureReplicasHaveTheBuffersOfTheModule) {
  NormedWords model = seeded<NormedWords>(DType::f32);
  DataParallel dp(model, cpus(2));
  auto step = graph::capture([&](const Tensor& x) {
    model.zero_grad();
    dp(x).sum().backward();
  });
  const Tensor x = tensor<std::int64_t>({1, 2, 3, 4});
  while (step.stats().replayed < 2) {
    step(x);
  }
  model.eval();
  dp(x);
  model.train();
  EXPECT_THROW(step(tensor<std::int64_t>({1, 2, 3, 7})), ValueError);
  EXPECT_FALSE(model.table.weight.grad().defined());
  model.eval();
  EXPECT_EQ(dp(x).detach().to_vector<float>(), model(x).detach().to_vector<float>());
}

TEST(DpCaptureReplay, IsSharedOutAnewWithAnotherNumberOfThreads) {
  const auto run = [](bool changes) {
    const test::ThreadCount two(2);
    NormedMlp model = seeded<NormedMlp>(DType::f32);
    DataParallel dp(model, cpus(3));
    auto step = graph::capture([&](const Tensor& x) {
      model.zero_grad();
      dp(x).sum().backward();
    });
    for (int i = 0; i < 8; ++i) {
      if (changes) {
        set_num_threads(1 + i % 3);
      }
      step(batch_of_step(i, 9).x);
    }
    return model.first.weight.grad().to_vector<float>();
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(DpCaptureErrors, ReplicasMadeWithinTheStep) {
  Shifted model;
  auto step = graph::capture([&](const Tensor& x) { return data_parallel(model, x, cpus(2)); });
  EXPECT_EQ(message_of<CaptureError>([&] { step(ones({2})); }),
            "replicate: a captured step cannot make replicas, because they would be gone after the step; make a "
            "DataParallel before the step, and call it there");
}

TEST(DpCaptureErrors, HostAccessInAReplicaNamesTheReplica) {
  nn::Linear model(2, 2);
  DataParallel dp(model, cpus(2));
  auto step = graph::capture([&](const Tensor& x) {
    return dp.loss([](const Tensor& out, const Tensor& y) { return out.sum() * y.sum().item(); }, x, x);
  });
  const std::string text = message_of<CaptureError>([&] { step(ones({2, 2})); });
  EXPECT_THAT(text, StartsWith("item: a captured step cannot read or write elements on the host"));
  EXPECT_THAT(text, EndsWith("in replica 0 of 2, on cpu:0"));
}

}  // namespace
}  // namespace tandem::parallel

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/check.h>
#include <tandem/tandem.h>
#include <tandem/tensor/recorder.h>

#include "parallel/models.h"
#include "parallel/ranks.h"
#include "support/gpu.h"
#include "support/message.h"
#include "support/warnings.h"

// Captured steps of DistributedDataParallel: a replay does what the recorded step did, with the other ranks.

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;
using testing::HasSubstr;

// Different on each rank and in each step.
Batch batch_of_step(const ProcessGroup& group, int step, std::int64_t rows) {
  const Tensor numbers = arange(0, rows * 6).reshape({rows, 6}).to(DType::f32);
  const Tensor x = sin(numbers * (1.0 + step) + group.rank());
  std::vector<std::int64_t> classes(static_cast<std::size_t>(rows));
  std::iota(classes.begin(), classes.end(), step + group.rank());
  std::ranges::for_each(classes, [](std::int64_t& value) { value %= 3; });
  return {.x = x, .y = from_data(classes, {rows}).to(core::thread_state().device)};
}

std::vector<std::vector<float>> values_of(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<float>> values;
  for (const Tensor& tensor : tensors) {
    values.push_back(tensor.detach().to("cpu:0").to_vector<float>());
  }
  return values;
}

// The way a step is made of passes.
enum class Passes { one, accumulated_within, accumulated_around };

struct Training {
  double bucket_cap_mb = 25;
  Passes passes = Passes::one;
  bool with_hook = false;
  int steps = 6;
  // The rows of a rank's batch in a step.
  std::function<std::int64_t(int rank, int step)> rows = [](int, int) { return 4; };
};

using Function = std::function<Tensor(Tensor, Tensor)>;

// The parameters and buffers after training with steps that `made` makes of functions.
std::vector<std::vector<float>> train(ProcessGroup& group, const Training& training,
                                      const std::function<Function(Function)>& made) {
  NormedMlp model = seeded<NormedMlp>(DType::f32);
  DistributedDataParallel ddp(model, {.bucket_cap_mb = training.bucket_cap_mb});
  if (training.with_hook) {
    ddp.register_comm_hook(parallel::bf16_compress_hook());
  }
  optim::Adam adam(model.parameters(), {.lr = 0.05});
  manual_seed(static_cast<std::uint64_t>(group.rank()));
  const auto backward = [&](const Tensor& x, const Tensor& y) {
    Tensor loss = nn::cross_entropy(ddp(x), y);
    loss.backward();
    return loss;
  };
  const Function local = made([&](Tensor x, Tensor y) { return backward(x, y); });
  const Function step = made([&](Tensor x, Tensor y) {
    if (training.passes != Passes::accumulated_around) {
      adam.zero_grad();
    }
    if (training.passes == Passes::accumulated_within) {
      const auto scope = ddp.no_sync();
      backward(x * 0.5, y);
    }
    Tensor loss = backward(x, y);
    adam.step();
    return loss;
  });
  for (int i = 0; i < training.steps; ++i) {
    const Batch batch = batch_of_step(group, i, training.rows(group.rank(), i));
    if (training.passes == Passes::accumulated_around) {
      adam.zero_grad();
      const auto scope = ddp.no_sync();
      local(batch.x * 0.5, batch.y);
    }
    step(batch.x, batch.y);
  }
  std::vector<std::vector<float>> values = values_of(model.parameters());
  for (std::vector<float>& buffer : values_of(model.buffers())) {
    values.push_back(std::move(buffer));
  }
  return values;
}

// Trains twice, with steps that are captured and that are not; both must give the same bits.
void expect_equal_bits(int ranks, const Training& training) {
  Warnings warnings;
  as_ranks(ranks, [&](ProcessGroup& group) {
    const auto eager = train(group, training, [](Function function) { return function; });
    std::vector<std::shared_ptr<graph::CapturedStep<Function>>> steps;
    const auto captured = train(group, training, [&](Function function) -> Function {
      const auto step = std::make_shared<graph::CapturedStep<Function>>(std::move(function));
      steps.push_back(step);
      return [step](const Tensor& x, const Tensor& y) { return (*step)(x, y); };
    });
    EXPECT_EQ(captured, eager) << "rank " << group.rank();
    EXPECT_GT(steps.back()->stats().replayed, 0);
    if (training.passes == Passes::accumulated_around) {
      EXPECT_GT(steps.front()->stats().replayed, 0);
    }
  });
  EXPECT_THAT(warnings.texts(), testing::IsEmpty());
}

TEST(DdpCapture, GivesTheBitsOfEagerSteps) {
  for (const int ranks : {1, 2, 3}) {
    for (const double bucket_cap_mb : {0.0, 25.0}) {
      expect_equal_bits(ranks, {.bucket_cap_mb = bucket_cap_mb});
    }
  }
}

TEST(DdpCapture, AccumulatesGradientsInNoSyncWithinTheStep) {
  expect_equal_bits(2, {.bucket_cap_mb = 0, .passes = Passes::accumulated_within});
}

TEST(DdpCapture, AccumulatesGradientsInNoSyncAroundTheStep) {
  expect_equal_bits(2, {.passes = Passes::accumulated_around, .steps = 8});
}

TEST(DdpCapture, CallsTheCommHookInEachReplay) { expect_equal_bits(2, {.bucket_cap_mb = 0, .with_hook = true}); }

TEST(DdpCapture, ARankMayRecordWhileAnotherOneReplays) {
  expect_equal_bits(2, {.bucket_cap_mb = 0, .steps = 12, .rows = [](int rank, int step) -> std::int64_t {
                          return rank == 1 && step % 4 == 3 ? 2 + step / 4 : 4;
                        }});
}

TEST(DdpCapture, NoSyncAroundAStepIsRecordedApart) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    auto step = graph::capture([&](const Tensor& x) {
      layer.zero_grad();
      ddp(x).sum().backward();
    });
    const float rank = static_cast<float>(group.rank());
    const Tensor x = full({1, 1}, rank);
    const auto gradient = [&] {
      step(x);
      return layer.weight.grad().to("cpu:0").item<float>();
    };
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(gradient(), 0.5F);
      const auto scope = ddp.no_sync();
      EXPECT_EQ(gradient(), rank);
    }
    EXPECT_GT(step.stats().replayed, 0);
  });
}

// A step of one linear layer, replayed twice at the end.
struct Replayed {
  nn::Linear layer{1, 1};
  std::optional<DistributedDataParallel<nn::Linear>> ddp{layer};
  graph::CapturedStep<std::function<void(Tensor)>> step{[this](const Tensor& x) {
    layer.zero_grad();
    (*ddp)(x).sum().backward();
  }};

  Replayed() {
    while (step.stats().replayed < 2) {
      step(ones({1, 1}));
    }
  }
};

TEST(DdpCapture, AFailedReplayLeavesNoGradientAndEndsTheGroup) {
  const std::vector<CommError> errors = comm_errors(2, [](ProcessGroup& group) {
    Replayed replayed;
    if (group.rank() == 1) {
      group.abort("rank 1 has had enough");
    }
    try {
      replayed.step(ones({1, 1}));
    } catch (const CommError&) {
      EXPECT_FALSE(replayed.layer.weight.grad().defined());
      throw;
    }
  });
  for (const CommError& error : errors) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 has had enough"));
  }
}

// The failure comes from the host, in the middle of the pass, with nothing of the wrapper's own.
TEST(DdpCapture, AFailureWithinAReplayedPassEndsTheGroup) {
  std::atomic<bool> fails{false};
  const std::vector<CommError> errors = comm_errors(2, [&](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    auto step = graph::capture([&](const Tensor& x) {
      layer.zero_grad();
      Tensor scaled = ddp(x);
      scaled.register_hook([&](const Tensor& gradient) {
        detail::host_work("test", [&fails] { check<ValueError>(!fails, "a replay failed"); });
        return gradient;
      });
      scaled.sum().backward();
    });
    while (step.stats().replayed < 2) {
      step(ones({1, 1}));
    }
    group.barrier();
    if (group.rank() == 1) {
      fails = true;
      EXPECT_THAT(message_of<ValueError>([&] { step(ones({1, 1})); }), HasSubstr("a replay failed"));
      EXPECT_FALSE(layer.weight.grad().defined());
    }
    const Tensor value = zeros({1});
    group.all_reduce(value);
  });
  for (const CommError& error : errors) {
    EXPECT_THAT(error.what(), HasSubstr("its backward pass failed: a replay failed"));
  }
}

// The same, from a hook that sees the mean over the ranks, when the wrapper's own part of the pass is over.
TEST(DdpCapture, AFailureOfAParametersHookInAReplayEndsTheGroup) {
  const std::vector<CommError> errors = comm_errors(2, [](ProcessGroup& group) {
    bool fails = false;
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    layer.weight.register_post_accumulate_grad_hook(
        [&](const Tensor&) { detail::host_work("test", [&fails] { check<ValueError>(!fails, "a hook failed"); }); });
    auto step = graph::capture([&](const Tensor& x) {
      layer.zero_grad();
      ddp(x).sum().backward();
    });
    while (step.stats().replayed < 2) {
      step(ones({1, 1}));
    }
    group.barrier();
    if (group.rank() == 1) {
      fails = true;
      EXPECT_THAT(message_of<ValueError>([&] { step(ones({1, 1})); }), HasSubstr("a hook failed"));
    } else {
      step(ones({1, 1}));
    }
    group.all_reduce(zeros({1}));
  });
  for (const CommError& error : errors) {
    EXPECT_THAT(error.what(), HasSubstr("a hook failed"));
  }
}

TEST(DdpCapture, ACommHookThatThrowsWhatIsNoExceptionLeavesAWrapperThatWorks) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    bool throws = false;
    ddp.register_comm_hook([&](ProcessGroup&, const parallel::GradBucket&) -> std::function<void()> {
      return throws ? throw 42 : std::function<void()>();
    });
    auto step = graph::capture([&](const Tensor& x) {
      layer.zero_grad();
      ddp(x).sum().backward();
    });
    while (step.stats().replayed < 2) {
      step(ones({1, 1}));
    }
    throws = true;
    EXPECT_THROW(step(ones({1, 1})), int);
    EXPECT_FALSE(layer.weight.grad().defined());
    throws = false;
    step(full({1, 1}, 3.0));
    EXPECT_EQ(layer.weight.grad().to("cpu:0").item<float>(), 3.0F);
    layer.zero_grad();
    ddp(full({1, 1}, 2.0)).sum().backward();
    EXPECT_EQ(layer.weight.grad().to("cpu:0").item<float>(), 2.0F);
  });
}

TEST(DdpCapture, ACommHookRecordsNoHistoryInAReplay) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    int with_history = 0;
    ddp.register_comm_hook([&](ProcessGroup&, const parallel::GradBucket&) -> std::function<void()> {
      with_history += (layer.weight * 2.0).requires_grad() ? 1 : 0;
      return {};
    });
    auto step = graph::capture([&](const Tensor& x) { ddp(x).sum().backward(); });
    while (step.stats().replayed < 2) {
      step(ones({1, 1}));
    }
    EXPECT_EQ(with_history, 0);
  });
}

TEST(DdpCapture, AStepThatReducesEverySecondTimeIsRefused) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    int steps = 0;
    auto step = graph::capture([&](const Tensor& x) {
      if (steps++ % 2 == 0) {
        const auto local = ddp.no_sync();
        ddp(x).sum().backward();
      } else {
        ddp(x).sum().backward();
      }
    });
    EXPECT_THAT(message_of<CaptureError>([&] {
                  for (int i = 0; i < 10; ++i) {
                    step(ones({1, 1}));
                  }
                }),
                HasSubstr("no two in a row did the same"));
  });
}

// The parameters change before the replay's pass in no_sync(), not after it.
TEST(DdpCapture, AnUpdateBeforeALocalPassOfTheSameStepIsNoDrift) {
  Warnings warnings;
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    optim::SGD sgd(layer.parameters(), {.lr = 0.1});
    const Tensor x = full({1, 1}, 1.0 + group.rank());
    ddp(x).sum().backward();
    auto update_and_begin = graph::capture([&](const Tensor& input) {
      sgd.step();
      sgd.zero_grad();
      const auto local = ddp.no_sync();
      ddp(input).sum().backward();
    });
    for (int i = 0; i < 6; ++i) {
      update_and_begin(x);
      ddp(x).sum().backward();
    }
    EXPECT_GT(update_and_begin.stats().replayed, 0);
  });
  EXPECT_THAT(warnings.texts(), testing::IsEmpty());
}

TEST(DdpCapture, ANoSyncThatOutlivesItsStepIsAnError) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    using NoSync = DistributedDataParallel<nn::Linear>::NoSync;
    std::unique_ptr<NoSync> kept;
    auto step = graph::capture([&](const Tensor& x) {
      kept.reset();
      kept.reset(new NoSync(ddp.no_sync()));
      ddp(x).sum().backward();
    });
    step(ones({1, 1}));
    EXPECT_THAT(message_of<CaptureError>([&] { ddp(ones({1, 1})); }), HasSubstr("outlives the step"));
  });
}

TEST(DdpCapture, ABackwardPassAloneMayBeCaptured) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    const Tensor loss = ddp(full({1, 1}, static_cast<double>(group.rank()))).sum();
    auto step = graph::capture([&] {
      layer.zero_grad();
      loss.backward({}, true);
    });
    while (step.stats().replayed < 2) {
      step();
      EXPECT_EQ(layer.weight.grad().to("cpu:0").item<float>(), 0.5F);
    }
  });
}

TEST(DdpCapture, FindUnusedParametersIsRefused) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(2, 1);
    DistributedDataParallel ddp(layer, {.find_unused_parameters = true});
    auto step = graph::capture([&](const Tensor& x) { ddp(x).sum().backward(); });
    EXPECT_THAT(message_of<CaptureError>([&] { step(ones({1, 2})); }),
                HasSubstr("a captured step cannot have find_unused_parameters"));
  });
}

TEST(DdpCapture, AJoinIsRefusedWhetherTheStepIsRecordedOrReplayed) {
  as_ranks(1, [](ProcessGroup&) {
    Replayed replayed;
    parallel::Join join(*replayed.ddp);
    for (const std::int64_t rows : {1, 2}) {
      EXPECT_THAT(message_of<CaptureError>([&] { replayed.step(ones({rows, 1})); }),
                  HasSubstr("a captured step cannot run in a Join"));
    }
    join.finish([] {});
  });
}

TEST(DdpCapture, AWrapperThatIsGoneIsRecordedAnew) {
  as_ranks(2, [](ProcessGroup& group) {
    Replayed replayed;
    replayed.ddp.reset();
    replayed.ddp.emplace(replayed.layer);
    group.barrier();
    replayed.step(full({1, 1}, static_cast<double>(group.rank())));
    EXPECT_EQ(replayed.layer.weight.grad().to("cpu:0").item<float>(), 0.5F);
  });
}

TEST(DdpCapture, NanInAReplayIsTold) {
  TANDEM_SKIP_ON_GPU("gradients on a GPU are not looked at");
  Warnings warnings;
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    auto step = graph::capture([&](const Tensor& x, const Tensor& weight) {
      layer.zero_grad();
      (ddp(x) * weight).sum().backward();
    });
    const Tensor usual = ones({1, 1});
    while (step.stats().replayed < 2) {
      step(usual, usual);
    }
    step(usual, full({1, 1}, group.rank() == 1 ? std::numeric_limits<double>::quiet_NaN() : 1.0));
  });
  ASSERT_EQ(warnings.texts().size(), 1U);
  EXPECT_THAT(warnings.texts()[0], HasSubstr("rank 1: its loss gives DistributedDataParallel #0 a gradient with NaN"));
}

}  // namespace
}  // namespace tandem::test

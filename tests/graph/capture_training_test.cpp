#include <cmath>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/thread_state.h>
#include <tandem/graph/capture.h>
#include <tandem/nn/batch_norm.h>
#include <tandem/nn/container.h>
#include <tandem/nn/conv.h>
#include <tandem/nn/embedding.h>
#include <tandem/nn/group_norm.h>
#include <tandem/nn/layer_norm.h>
#include <tandem/nn/loss.h>
#include <tandem/nn/pool.h>
#include <tandem/nn/stateless.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip.h>
#include <tandem/optim/ema.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/optim/lr_scheduler.h>
#include <tandem/optim/one_cycle_lr.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>

// Training with a captured step equals eager training bitwise: losses, weights, and the optimizer's state.

namespace tandem {
namespace {

constexpr int kSteps = 50;

struct Batch {
  Tensor x, y;
};

/// The outcome of a training run.
struct Result {
  std::vector<double> losses;
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<double>> states;
  std::uint64_t offset;
  graph::CaptureStats stats;
};

using Step = std::function<Tensor(const Tensor& x, const Tensor& y)>;

/// A model, an optimiser, and further participants of a training run.
struct Setup {
  nn::Sequential model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::function<void(int)> between = [](int) {};
  Step step{};
};

std::vector<Batch> batches(const std::vector<std::int64_t>& sizes) {
  Generator generator(3);
  const GeneratorScope scope(generator);
  std::vector<Batch> result;
  for (int i = 0; i < kSteps; ++i) {
    const std::int64_t size = sizes[static_cast<std::size_t>(i) % sizes.size()];
    result.push_back({randn({size, 20}), randint(0, 7, {size})});
  }
  return result;
}

using Make = std::function<std::unique_ptr<Setup>()>;

Result train(const Make& make, const std::vector<std::int64_t>& sizes, bool captured) {
  const std::vector<Batch> data = batches(sizes);
  Generator generator(11);
  const GeneratorScope draws(generator);
  const std::unique_ptr<Setup> setup = make();
  if (!setup->step) {
    setup->step = [&](const Tensor& x, const Tensor& y) {
      setup->optimizer->zero_grad();
      Tensor loss = nn::cross_entropy(setup->model(x), y);
      loss.backward();
      setup->optimizer->step();
      return loss;
    };
  }
  auto step = graph::capture([&](const Tensor& x, const Tensor& y) { return setup->step(x, y); });
  Result result;
  for (int i = 0; i < kSteps; ++i) {
    const auto& [x, y] = data[static_cast<std::size_t>(i)];
    result.losses.push_back((captured ? step(x, y) : setup->step(x, y)).item());
    setup->between(i);
  }
  for (const Tensor& parameter : setup->model.parameters())
    result.weights.push_back(parameter.to_vector<float>());
  for (const auto& [name, value] : setup->model.state_dict())
    result.states.push_back(value.to_vector<double>());
  for (const auto& [name, value] : setup->optimizer->state_dict())
    result.states.push_back(value.to_vector<double>());
  result.offset = generator.offset();
  result.stats = step.stats();
  return result;
}

graph::CaptureStats expect_same_as_eager(const Make& make, const std::vector<std::int64_t>& sizes = {16}) {
  const Result eager = train(make, sizes, false);
  const Result captured = train(make, sizes, true);
  EXPECT_EQ(captured.losses, eager.losses);
  EXPECT_EQ(captured.weights, eager.weights);
  EXPECT_EQ(captured.states, eager.states);
  EXPECT_EQ(captured.offset, eager.offset);
  EXPECT_EQ(captured.stats.recorded + captured.stats.replayed, static_cast<std::uint64_t>(kSteps));
  return captured.stats;
}

nn::Sequential mlp() {
  return nn::Sequential(nn::Linear(20, 33), nn::ReLU(), nn::Linear(33, 17), nn::Tanh(), nn::Linear(17, 7));
}

std::unique_ptr<Setup> with_sgd(nn::Sequential model, const optim::SGDOptions& options = {.lr = 0.1, .momentum = 0.9}) {
  auto optimizer = std::make_unique<optim::SGD>(model.parameters(), options);
  return std::make_unique<Setup>(Setup{std::move(model), std::move(optimizer)});
}

std::unique_ptr<Setup> with_adam(nn::Sequential model) {
  auto optimizer = std::make_unique<optim::Adam>(model.parameters(), optim::AdamOptions{.lr = 0.01});
  return std::make_unique<Setup>(Setup{std::move(model), std::move(optimizer)});
}

std::unique_ptr<Setup> with_masters(nn::Sequential model, DType dtype) {
  model.to(dtype);
  auto optimizer =
      std::make_unique<optim::AdamW>(model.parameters(), optim::AdamWOptions{.lr = 0.01, .master_weights = true});
  return std::make_unique<Setup>(Setup{std::move(model), std::move(optimizer)});
}

TEST(CapturedTraining, WithMomentumIsEagerTraining) {
  const graph::CaptureStats stats = expect_same_as_eager([] { return with_sgd(mlp()); });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_LE(stats.recorded, 3u);
}

TEST(CapturedTraining, WithPlainSgdIsEagerTraining) {
  const graph::CaptureStats stats = expect_same_as_eager([] { return with_sgd(mlp(), {.lr = 0.1}); });
  EXPECT_LE(stats.recorded, 3u);
}

TEST(CapturedTraining, WithAdamIsEagerTraining) {
  EXPECT_LE(expect_same_as_eager([] { return with_adam(mlp()); }).recorded, 3u);
}

// An optimiser step captured alone, for example with DistributedDataParallel, whose backward pass cannot be captured.
TEST(CapturedTraining, OfTheUpdateAloneSeesWhichParametersHaveGradients) {
  const auto train = [](bool captured) {
    manual_seed(3);
    nn::Linear heads[] = {nn::Linear(4, 2), nn::Linear(4, 2)};
    optim::SGD sgd({{.params = heads[0].parameters()}, {.params = heads[1].parameters()}}, {.lr = 0.1});
    const auto body = [&](const Tensor& x) {
      sgd.step();
      sgd.zero_grad();
      return x + 1.0;
    };
    auto step = graph::capture(body);
    const Tensor x = randn({3, 4});
    for (int i = 0; i < 16; ++i) {
      heads[i / 4 % 2](x).pow(2).mean().backward();
      captured ? step(x) : body(x);
    }
    std::vector<float> weights = heads[0].weight.detach().to("cpu:0").to_vector<float>();
    const auto second = heads[1].weight.detach().to("cpu:0").to_vector<float>();
    weights.insert(weights.end(), second.begin(), second.end());
    return weights;
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(CapturedTraining, WithDropoutDrawsTheSameNumbers) {
  const auto stats = expect_same_as_eager([] {
    return with_adam(nn::Sequential(nn::Linear(20, 33), nn::ReLU(), nn::Dropout(0.3), nn::Linear(33, 17), nn::ReLU(),
                                    nn::Dropout(0.5), nn::Linear(17, 7)));
  });
  EXPECT_LE(stats.recorded, 3u);
}

TEST(CapturedTraining, WithNoiseDrawnBetweenSteps) {
  expect_same_as_eager([] {
    auto setup = with_adam(nn::Sequential(nn::Linear(20, 33), nn::Dropout(0.3), nn::Linear(33, 7)));
    setup->between = [](int) { rand({5}); };
    return setup;
  });
}

TEST(CapturedTraining, WithBatchNormAndLayerNorm) {
  const auto stats = expect_same_as_eager([] {
    return with_sgd(nn::Sequential(nn::Linear(20, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Linear(16, 12),
                                   nn::LayerNorm({12}), nn::Linear(12, 7)));
  });
  EXPECT_LE(stats.recorded, 3u);
}

/// Sees rows of 20 as images.
struct AsImages : nn::Module<AsImages> {
  Tensor forward(const Tensor& x) const { return x.reshape({-1, 1, 4, 5}); }
};

TEST(CapturedTraining, WithConvolutions) {
  const auto stats = expect_same_as_eager([] {
    return with_sgd(nn::Sequential(AsImages(), nn::Conv2d(1, 6, 3, {.padding = 1}), nn::BatchNorm2d(6), nn::ReLU(),
                                   nn::Upsample(2, {.mode = InterpolateMode::bilinear}), nn::MaxPool2d(2),
                                   nn::Conv2d(6, 8, 2), nn::GroupNorm(2, 8), nn::Dropout2d(0.1),
                                   nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(8, 7)));
  });
  EXPECT_LE(stats.recorded, 3u);
}

TEST(CapturedTraining, WithAScheduleSteppedOutside) {
  const auto stats = expect_same_as_eager([] {
    auto setup = with_sgd(mlp());
    auto schedule =
        std::make_shared<optim::CosineAnnealingLR>(*setup->optimizer, optim::CosineAnnealingLROptions{.T_max = kSteps});
    setup->between = [schedule](int) { schedule->step(); };
    return setup;
  });
  EXPECT_EQ(stats.captures, 1u);
}

TEST(CapturedTraining, WithAScheduleAndAveragesInTheStep) {
  const auto stats = expect_same_as_eager([] {
    auto setup = with_sgd(mlp());
    auto schedule =
        std::make_shared<optim::StepLR>(*setup->optimizer, optim::StepLROptions{.step_size = 7, .gamma = 0.5});
    auto ema = std::make_shared<optim::EMA>(setup->model.parameters(), optim::EMAOptions{.decay = 0.9});
    setup->step = [raw = setup.get(), schedule, ema](const Tensor& x, const Tensor& y) {
      raw->optimizer->zero_grad();
      Tensor loss = nn::cross_entropy(raw->model(x), y);
      loss.backward();
      raw->optimizer->step();
      schedule->step();
      ema->update();
      return loss + ema->averages()[0].sum() * 0;
    };
    return setup;
  });
  EXPECT_EQ(stats.captures, 1u);
}

TEST(CapturedTraining, WithMomentumThatIsScheduled) {
  const auto stats = expect_same_as_eager([] {
    auto setup = with_sgd(mlp());
    auto schedule = std::make_shared<optim::OneCycleLR>(
        *setup->optimizer, optim::OneCycleLROptions{.max_lr = {0.2}, .total_steps = kSteps + 1});
    setup->between = [schedule](int) { schedule->step(); };
    return setup;
  });
  EXPECT_EQ(stats.captures, 1u);
}

TEST(CapturedTraining, WithClippedGradients) {
  const auto stats = expect_same_as_eager([] {
    auto setup = with_adam(mlp());
    setup->step = [raw = setup.get(), parameters = setup->model.parameters()](const Tensor& x, const Tensor& y) {
      raw->optimizer->zero_grad();
      Tensor loss = nn::cross_entropy(raw->model(x), y);
      loss.backward();
      const Tensor norm = optim::clip_grad_norm_(parameters, 0.5, 2, x.device().type == DeviceType::cpu);
      optim::clip_grad_value_(parameters, 0.05);
      raw->optimizer->step();
      return loss + norm.to(DType::f32);
    };
    return setup;
  });
  EXPECT_LE(stats.recorded, 3u);
}

// Makes the gradients of every ninth batch infinite.
void add_scaler(Setup& setup, double max_norm) {
  auto scaler = std::make_shared<optim::GradScaler>(optim::GradScalerOptions{.init_scale = 64, .growth_interval = 4});
  std::vector<float> factors(kSteps, 1);
  for (std::size_t i = 8; i < factors.size(); i += 9)
    factors[i] = INFINITY;
  Tensor batch = zeros({1}, {.dtype = DType::i64});
  setup.step = [raw = &setup, scaler, batch, all = from_data(factors, {kSteps}), max_norm](const Tensor& x,
                                                                                           const Tensor& y) mutable {
    raw->optimizer->zero_grad();
    const Tensor factor = all.index_select(0, batch).sum();
    batch.add_(1);
    Tensor loss = nn::cross_entropy(raw->model(x.to(raw->model.parameters()[0].dtype())).to(DType::f32), y);
    scaler->scale(loss * factor).backward();
    if (max_norm > 0) {
      scaler->unscale_(*raw->optimizer);
      optim::clip_grad_norm_(raw->model.parameters(), max_norm);
    }
    scaler->step(*raw->optimizer);
    scaler->update();
    return loss;
  };
  auto schedule =
      std::make_shared<optim::CosineAnnealingLR>(*setup.optimizer, optim::CosineAnnealingLROptions{.T_max = kSteps});
  setup.between = [schedule, scaler](int i) {
    schedule->step();
    // The scale starts at 64, halves with every infinity, and doubles after every four steps without one.
    double scale = 64;
    for (int step = 1, good = 0; step <= i + 1; ++step) {
      good = step % 9 == 0 ? 0 : good + 1;
      scale *= step % 9 == 0 ? 0.5 : good == 4 ? 2 : 1;
      good %= 4;
    }
    EXPECT_EQ(scaler->get_scale(), scale) << "after step " << i;
  };
}

TEST(CapturedTraining, WithAScaledLossAndItsSchedule) {
  for (const double max_norm : {0.0, 0.5}) {
    const auto stats = expect_same_as_eager([=] {
      auto setup = with_adam(mlp());
      add_scaler(*setup, max_norm);
      return setup;
    });
    EXPECT_EQ(stats.captures, 1u);
    EXPECT_LE(stats.recorded, 3u);
    EXPECT_EQ(stats.gpu_graphs, core::thread_state().device.type == DeviceType::cuda ? 1u : 0u);
  }
}

TEST(CapturedTraining, WithAScaledLossAndMasters) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const auto stats = expect_same_as_eager([=] {
      auto setup = with_masters(mlp(), dtype);
      add_scaler(*setup, 0);
      return setup;
    });
    EXPECT_EQ(stats.captures, 1u);
    EXPECT_EQ(stats.gpu_graphs, core::thread_state().device.type == DeviceType::cuda ? 1u : 0u);
  }
}

TEST(CapturedTraining, WithEagerStepsThatAreNotScaledBetween) {
  const auto stats = expect_same_as_eager([] {
    auto setup = with_adam(mlp());
    add_scaler(*setup, 0);
    setup->between = [raw = setup.get(), x = full({4, 20}, 0.5)](int i) {
      if (i % 20 != 19) return;
      raw->optimizer->zero_grad();
      raw->model(x).sum().backward();
      raw->optimizer->step();
    };
    return setup;
  });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_GT(stats.replayed, 30u);
}

TEST(CapturedTraining, WithBatchesOfSeveralSizes) {
  const auto stats = expect_same_as_eager([] { return with_adam(mlp()); }, {16, 9, 16, 5});
  EXPECT_EQ(stats.captures, 3u);
  EXPECT_LE(stats.recorded, 7u);
}

TEST(CapturedTraining, WithGradientsAccumulatedOverSteps) {
  for (const int every : {2, 3}) {
    const auto stats = expect_same_as_eager([every] {
      auto setup = with_sgd(mlp());
      setup->step = [raw = setup.get()](const Tensor& x, const Tensor& y) {
        Tensor loss = nn::cross_entropy(raw->model(x), y);
        loss.backward();
        return loss;
      };
      setup->between = [raw = setup.get(), every](int i) {
        if (i % every == every - 1) {
          raw->optimizer->step();
          raw->optimizer->zero_grad();
        }
      };
      return setup;
    });
    EXPECT_LE(stats.captures, 3u);  // with and without gradients; the first optimiser step changes its layout
    EXPECT_LE(stats.recorded, 7u);
  }
}

TEST(CapturedTraining, WithEagerStepsAndEvaluationsBetween) {
  const auto stats = expect_same_as_eager([] {
    auto setup = with_sgd(nn::Sequential(nn::Linear(20, 30), nn::ReLU(), nn::Dropout(0.2), nn::Linear(30, 7)));
    setup->between = [raw = setup.get(), x = full({4, 20}, 0.5)](int i) {
      if (i % 20 != 19) return;
      raw->model.eval();
      {
        const NoGradGuard no_grad;
        raw->model(x);
      }
      raw->model.train();
      raw->optimizer->zero_grad();
      raw->model(x).sum().backward();
      raw->optimizer->step();
    };
    return setup;
  });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_GT(stats.replayed, 30u);
}

TEST(CapturedTraining, WithParametersThatThaw) {
  const auto stats = expect_same_as_eager([] {
    auto setup = with_sgd(mlp());
    Tensor first = setup->model.parameters()[0];
    first.requires_grad_(false);
    setup->between = [first](int i) mutable {
      if (i == 20) first.requires_grad_(true);
    };
    return setup;
  });
  EXPECT_EQ(stats.captures, 2u);
}

TEST(CapturedTraining, OnSeveralThreadsAtOnce) {
  const Make make = [] { return with_adam(nn::Sequential(nn::Linear(20, 33), nn::Dropout(0.3), nn::Linear(33, 7))); };
  const Result eager = train(make, {16}, false);
  std::vector<std::future<Result>> runs;
  for (int i = 0; i < 3; ++i) {
    runs.push_back(std::async(std::launch::async, [&, device = core::thread_state().device] {
      const core::DeviceScope on(device);
      return train(make, {16}, true);
    }));
  }
  for (std::future<Result>& run : runs) {
    const Result captured = run.get();
    EXPECT_EQ(captured.losses, eager.losses);
    EXPECT_EQ(captured.weights, eager.weights);
    EXPECT_EQ(captured.states, eager.states);
  }
}

TEST(CapturedTraining, GoesOnFromALoadedState) {
  const auto stats = expect_same_as_eager([] {
    auto setup = with_adam(mlp());
    auto saved = std::make_shared<StateDict>();
    setup->between = [raw = setup.get(), saved](int i) {
      if (i == 10) *saved = raw->optimizer->state_dict();
      if (i == 25) raw->optimizer->load_state_dict(*saved);
    };
    return setup;
  });
  EXPECT_EQ(stats.captures, 2u);
}

}  // namespace
}  // namespace tandem

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/spatial.h>
#include <tandem/core/check.h>
#include <tandem/nn/conv.h>
#include <tandem/nn/pool.h>
#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"
#include "support/gpu.h"
#include "support/message.h"

// Batch norms that sync equal one device with the joined batch. Ranks may have unequal batches, and none.

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;
using parallel::sync_batch_norm;
using testing::HasSubstr;

using Values = std::vector<double>;

Values values_of(const Tensor& tensor) { return tensor.detach().to("cpu:0").to(DType::f64).to_vector<double>(); }

struct ConvNet : nn::Module<ConvNet> {
  nn::Conv2d conv1 = child("conv1", nn::Conv2d(2, 4, 3, {.padding = 1, .bias = false}));
  nn::BatchNorm2d bn1 = child("bn1", nn::BatchNorm2d(4));
  nn::Conv2d conv2 = child("conv2", nn::Conv2d(4, 6, 3, {.stride = 2, .groups = 2}));
  nn::BatchNorm2d bn2 = child("bn2", nn::BatchNorm2d(6, {.momentum = std::nullopt}));
  nn::Linear fc = child("fc", nn::Linear(6, 3));
  Tensor forward(const Tensor& x) const {
    const Tensor hidden = max_pool2d(relu(bn1(conv1(x))), 2);
    return fc(adaptive_avg_pool2d(relu(bn2(conv2(hidden))), 1).flatten(1));
  }
};

struct Images {
  Tensor x, y;
};
Images images_of(int step, std::int64_t rows, DType dtype = DType::f64) {
  manual_seed(static_cast<std::uint64_t>(100 + step));
  return {randn({rows, 2, 12, 12}, {.dtype = dtype}) + 3, randint(0, 3, {rows})};
}

// The rows of a rank: 5, 2, 5, 2, ... images, of which rank 1 has none in every second step.
struct Part {
  std::int64_t begin, rows;
};
Part part_of(int rank, int step) {
  constexpr std::int64_t kRows[] = {5, 2};
  Part part{0, 0};
  for (int r = 0; r <= rank; ++r) {
    part.begin += part.rows;
    part.rows = r == 1 && step % 2 == 1 ? 0 : kRows[r % 2];
  }
  return part;
}
std::int64_t rows_of(int ranks, int step) {
  const Part last = part_of(ranks - 1, step);
  return last.begin + last.rows;
}

template <class M>
std::vector<Values> trained(M& model) {
  std::vector<Values> values;
  for (const auto& list : {model.parameters(), model.buffers()}) {
    for (const Tensor& tensor : list) {
      values.push_back(values_of(tensor));
    }
  }
  return values;
}

void expect_close(const std::vector<Values>& got, const std::vector<Values>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), expected[i].size());
    for (std::size_t j = 0; j < got[i].size(); ++j) {
      EXPECT_NEAR(got[i][j], expected[i][j], tolerance * std::max(1.0, std::abs(expected[i][j]))) << i << ", " << j;
    }
  }
}

class SyncBatchNorm : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SyncBatchNorm, testing::Values(1, 2, 3));

TEST_P(SyncBatchNorm, GivesOutputsGradientsAndStatisticsOfTheJoinedBatch) {
  const int ranks = GetParam();
  for (const int step : {0, 1}) {
    const Images all = images_of(step, rows_of(ranks, step));
    const auto run = [&](const nn::BatchNorm2d& norm, const Part& part) {
      const Tensor mine = all.x.narrow(0, part.begin, part.rows).to(norm.weight.device());
      const Tensor x = mine.clone().requires_grad_();
      const Tensor out = norm(x);
      (out * sin(mine)).sum().backward();
      return std::vector<Tensor>{out, x.grad(), norm.weight.grad(), norm.bias.grad()};
    };
    const auto made = [] {
      nn::BatchNorm2d norm(2, {.dtype = DType::f64});
      const NoGradGuard no_grad;
      Tensor(norm.weight).copy_(arange(0, 2) + 1.5);
      return norm;
    };
    const nn::BatchNorm2d one = made();
    const std::vector<Tensor> expected = run(one, {0, all.x.size(0)});
    std::vector<std::vector<Values>> buffers(static_cast<std::size_t>(ranks));
    as_ranks(ranks, [&](ProcessGroup& group) {
      const Part part = part_of(group.rank(), step);
      const nn::BatchNorm2d norm = made();
      sync_batch_norm(norm, group);
      std::vector<Tensor> got = run(norm, part);
      for (std::size_t i : {0U, 1U}) {
        expect_close({values_of(got[i])}, {values_of(expected[i].narrow(0, part.begin, part.rows))}, 1e-12);
      }
      for (std::size_t i : {2U, 3U}) {
        group.all_reduce(got[i]);
        expect_close({values_of(got[i])}, {values_of(expected[i])}, 1e-12);
      }
      expect_close({values_of(norm.running_mean), values_of(norm.running_var), values_of(norm.num_batches_tracked)},
                   {values_of(one.running_mean), values_of(one.running_var), values_of(one.num_batches_tracked)},
                   1e-12);
      buffers[static_cast<std::size_t>(group.rank())] = {values_of(norm.running_mean), values_of(norm.running_var)};
    });
    for (const auto& of_rank : buffers) {
      EXPECT_EQ(of_rank, buffers.front());
    }
  }
}

TEST_P(SyncBatchNorm, TrainsAConvolutionalNetLikeOneDeviceEagerAndCaptured) {
  const int ranks = GetParam();
  constexpr int kSteps = 5;
  constexpr std::int64_t kRows = 4;
  const auto train = [&](std::optional<ProcessGroup*> group, bool captured) {
    ConvNet model = seeded<ConvNet>();
    std::optional<DistributedDataParallel<ConvNet>> ddp;
    if (group) {
      sync_batch_norm(model, **group);
      ddp.emplace(model, parallel::DistributedOptions{.process_group = *group, .broadcast_buffers = false});
    }
    optim::SGD sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9});
    std::function<Tensor(Tensor, Tensor)> step = [&](const Tensor& x, const Tensor& y) {
      sgd.zero_grad();
      Tensor loss = nn::cross_entropy(ddp ? (*ddp)(x) : model(x), y);
      loss.backward();
      sgd.step();
      return loss;
    };
    auto replayed = graph::capture(step);
    for (int i = 0; i < kSteps; ++i) {
      const Images images = images_of(i, kRows * ranks);
      const std::int64_t begin = group ? kRows * (*group)->rank() : 0;
      const std::int64_t rows = group ? kRows : kRows * ranks;
      const Tensor x = images.x.narrow(0, begin, rows).clone();
      const Tensor y = images.y.narrow(0, begin, rows).clone();
      captured ? replayed(x, y) : step(x, y);
    }
    EXPECT_EQ(replayed.stats().replayed > 0, captured);
    return trained(model);
  };
  const std::vector<Values> expected = train(std::nullopt, false);
  as_ranks(ranks, [&](ProcessGroup& group) {
    const std::vector<Values> eager = train(&group, false);
    expect_close(eager, expected, 1e-10);
    EXPECT_EQ(train(&group, true), eager);
  });
}

TEST(SyncBatchNormModes, EvaluatesWithoutOtherRanks) {
  as_ranks(2, [](ProcessGroup& group) {
    ConvNet model = seeded<ConvNet>();
    const Images images = images_of(0, 3);
    model.eval();
    const Values before = values_of(model(images.x));
    sync_batch_norm(model, group);
    if (group.rank() == 0) {
      EXPECT_EQ(values_of(model(images.x)), before);
    }
  });
}

TEST(SyncBatchNormModes, TakesOneValuePerChannelOnARank) {
  as_ranks(2, [](ProcessGroup& group) {
    const nn::BatchNorm1d norm(1, {.dtype = DType::f64});
    sync_batch_norm(norm, group);
    const Tensor x = full({1, 1}, group.rank() == 0 ? -1.0 : 1.0, {.dtype = DType::f64});
    EXPECT_NEAR(norm(x).item(), (group.rank() == 0 ? -1 : 1) / std::sqrt(1 + 1e-5), 1e-12);
  });
}

TEST(SyncBatchNormModes, AStepThatWasCapturedBeforeIsCapturedAnew) {
  as_ranks(2, [](ProcessGroup& group) {
    const nn::BatchNorm1d norm(3, {.dtype = DType::f64});
    auto step = graph::capture([&](Tensor x) { return norm(x); });
    manual_seed(static_cast<std::uint64_t>(group.rank()));
    const Tensor x = randn({4, 3}, {.dtype = DType::f64});
    for (int i = 0; i < 4; ++i) {
      step(x);
    }
    sync_batch_norm(norm, group);
    const Values synced = values_of(norm(x));
    EXPECT_EQ(values_of(step(x)), synced);
    EXPECT_EQ(values_of(step(x)), synced);
  });
}

TEST(SyncBatchNormModes, AGroupOfOneRankEndsIt) {
  as_ranks(2, [](ProcessGroup& group) {
    const nn::BatchNorm1d norm(1, {.dtype = DType::f64});
    sync_batch_norm(norm, group);
    const auto alone = group.new_group({0});
    if (group.rank() == 0) {
      sync_batch_norm(norm, *alone);
      norm(randn({4, 1}, {.dtype = DType::f64}));
    }
  });
}

TEST(SyncBatchNormErrors, WithinDataParallel) {
  as_ranks(2, [](ProcessGroup& group) {
    const Device device = core::thread_state().device;
    ConvNet model = seeded<ConvNet>();
    sync_batch_norm(model, group);
    parallel::DataParallel dp(model, {device, device}, {.allow_duplicate_devices = true});
    const std::string text = message_of<ConfigError>([&] { dp(images_of(0, 4).x); });
    EXPECT_THAT(text, HasSubstr("sync_batch_norm joins the batches of ranks"));
    EXPECT_THAT(text, HasSubstr("bn1"));
  });
}

TEST(SyncBatchNormErrors, WithinAJoin) {
  as_ranks(2, [](ProcessGroup& group) {
    ConvNet model = seeded<ConvNet>();
    sync_batch_norm(model, group);
    DistributedDataParallel ddp(model, {.process_group = &group});
    EXPECT_THAT(message_of<ConfigError>([&] { parallel::Join join(ddp); }), HasSubstr("wait in them for ranks"));
  });
}

TEST(SyncBatchNormErrors, ARankThatFailsBeforeALayerEndsTheOthersWait) {
  std::string of_rank_0;
  const auto body = [&](ProcessGroup& group) {
    const nn::BatchNorm1d norm(1);
    sync_batch_norm(norm, group);
    check<ValueError>(group.rank() == 0, "no batch");
    of_rank_0 = message_of<CommError>([&] { norm(ones({2, 1})); });
  };
  EXPECT_THROW(as_ranks(2, body), ValueError);
  EXPECT_THAT(of_rank_0, HasSubstr("rank 1"));
}

}  // namespace
}  // namespace tandem::test

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"
#include "support/message.h"

namespace tandem::test {
namespace {

using parallel::ColumnParallelLinear;
using parallel::DeviceMesh;
using parallel::ProcessGroup;
using parallel::RowParallelLinear;
using parallel::VocabParallelEmbedding;
using testing::HasSubstr;

nn::Linear linear_layer(std::int64_t in, std::int64_t out, std::uint64_t seed, bool bias = true) {
  Generator generator(seed);
  const GeneratorScope draws(generator);
  return nn::Linear(in, out, {.bias = bias, .dtype = DType::f64});
}

nn::Embedding embedding_layer(std::optional<std::int64_t> padding_idx = {}) {
  Generator generator(3);
  const GeneratorScope draws(generator);
  return nn::Embedding(12, 8, {.padding_idx = padding_idx, .dtype = DType::f64});
}

// An embedding, two layers with a ReLU and a sum on the way, as in a transformer's block.
struct Whole : nn::Module<Whole> {
  nn::Embedding table = child("table", embedding_layer());
  nn::LayerNorm norm = child("norm", nn::LayerNorm({8}, {.dtype = DType::f64}));
  nn::Linear up = child("up", linear_layer(8, 24, 1));
  nn::Linear down = child("down", linear_layer(24, 8, 2));
  Tensor forward(const Tensor& indices) const {
    const Tensor x = table(indices);
    return x + down(relu(up(norm(x))));
  }
};

struct Divided : nn::Module<Divided> {
  Divided(ProcessGroup& group, bool sequence)
      : table(child("table", VocabParallelEmbedding(embedding_layer(), group, {.sequence_parallel = sequence}))),
        norm(child("norm", nn::LayerNorm({8}, {.dtype = DType::f64}))),
        up(child("up", ColumnParallelLinear(linear_layer(8, 24, 1), group, {.sequence_parallel = sequence}))),
        down(child("down", RowParallelLinear(linear_layer(24, 8, 2), group, {.sequence_parallel = sequence}))) {}
  Tensor forward(const Tensor& indices) const {
    const Tensor x = table(indices);
    return x + down(relu(up(norm(x))));
  }
  VocabParallelEmbedding table;
  nn::LayerNorm norm;
  ColumnParallelLinear up;
  RowParallelLinear down;
};

Tensor indices_of_step(int step) {
  Generator generator(static_cast<std::uint64_t>(100 + step));
  const GeneratorScope draws(generator);
  return randint(0, 12, {12});
}

Tensor target_of_step(int step) {
  Generator generator(static_cast<std::uint64_t>(200 + step));
  const GeneratorScope draws(generator);
  return randn({12, 8}, {.dtype = DType::f64});
}

TEST(TensorParallel, TrainsAsOneDeviceDoes) {
  Whole alone;
  optim::Adam adam(alone.parameters(), {.lr = 0.01});
  for (int i = 0; i < 50; ++i) {
    adam.zero_grad();
    nn::mse_loss(alone(indices_of_step(i)), target_of_step(i)).backward();
    adam.step();
  }
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool sequence : {false, true}) {
      as_ranks(ranks, [&](ProcessGroup& group) {
        Divided model(group, sequence);
        optim::Adam own(model.parameters(), {.lr = 0.01});
        for (int i = 0; i < 50; ++i) {
          own.zero_grad();
          const Tensor output = model(indices_of_step(i));
          const Tensor target = target_of_step(i);
          // With a divided sequence each rank has the loss of its rows.
          const std::int64_t rows = 12 / group.size();
          (sequence ? nn::mse_loss(output, target.narrow(0, rows * group.rank(), rows)) / group.size()
                    : nn::mse_loss(output, target))
              .backward();
          if (sequence) {
            parallel::all_reduce_gradients(model.norm.parameters(), group, parallel::ReduceOp::sum);
          }
          own.step();
        }
        EXPECT_LT(difference(model.table.whole().weight, alone.table.weight), 1e-12);
        EXPECT_LT(difference(model.norm.weight, alone.norm.weight), 1e-12);
        EXPECT_LT(difference(model.up.whole().weight, alone.up.weight), 1e-12);
        EXPECT_LT(difference(model.up.whole().bias, alone.up.bias), 1e-12);
        EXPECT_LT(difference(model.down.whole().weight, alone.down.weight), 1e-12);
        EXPECT_LT(difference(model.down.whole().bias, alone.down.bias), 1e-12);
        EXPECT_EQ(model.up.weight.shape(), Shape({24 / group.size(), 8}));
        EXPECT_EQ(model.down.weight.shape(), Shape({8, 24 / group.size()}));
      });
    }
  }
}

// Values and gradients of a function of x on each rank are those of the same function on one device.
void expect_as_whole(const std::function<Tensor(const Tensor& x)>& whole,
                     const std::function<Tensor(const Tensor& x, ProcessGroup& group)>& divided) {
  Generator generator(8);
  const GeneratorScope draws(generator);
  const Tensor x = randn({4, 3, 8}, {.dtype = DType::f64});
  Tensor alone = x.clone();
  alone.requires_grad_();
  const Tensor expected = whole(alone);
  const Tensor seed = randn_like(expected.detach());
  expected.backward(seed);
  as_ranks(2, [&](ProcessGroup& group) {
    Tensor own = x.clone();
    own.requires_grad_();
    const Tensor output = divided(own, group);
    EXPECT_LT(difference(output, expected), 1e-13);
    output.backward(seed);
    EXPECT_LT(difference(own.grad(), alone.grad()), 1e-13);
  });
}

TEST(TensorParallel, LayersGatherAndScatterOnRequest) {
  const nn::Linear up = linear_layer(8, 6, 1);
  const auto whole = [&](const Tensor& x) { return up(x); };
  expect_as_whole(whole, [&](const Tensor& x, ProcessGroup& group) {
    return ColumnParallelLinear(up, group, {.gather_output = true})(x);
  });
  expect_as_whole(whole, [&](const Tensor& x, ProcessGroup& group) {
    return RowParallelLinear(up, group, {.input_is_parallel = false})(x);
  });
  const nn::Linear bare = linear_layer(8, 6, 4, false);
  expect_as_whole([&](const Tensor& x) { return bare(x); },
                  [&](const Tensor& x, ProcessGroup& group) {
                    const RowParallelLinear layer(bare, group, {.input_is_parallel = false});
                    EXPECT_FALSE(layer.whole().bias.defined());
                    return layer(x);
                  });
}

TEST(TensorParallel, FunctionsHaveTheGradientsOfOneDevice) {
  for (const int dim : {0, 2, -1}) {
    expect_as_whole([](const Tensor& x) { return x * x; },
                    [&](const Tensor& x, ProcessGroup& group) {
                      const Tensor part = parallel::scatter_to_group(x, group, dim);
                      return parallel::gather_from_group(part * part, group, dim);
                    });
  }
}

TEST(TensorParallel, EmbeddingKeepsThePaddingRow) {
  for (const std::int64_t padding : {0, 7, -1}) {
    as_ranks(2, [&](ProcessGroup& group) {
      VocabParallelEmbedding table(embedding_layer(padding), group);
      const Tensor all = from_data(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
      const nn::Embedding whole = embedding_layer(padding);
      EXPECT_EQ(difference(table(all), whole(all)), 0);
      table(all).sum().backward();
      whole(all).sum().backward();
      EXPECT_EQ(difference(table.weight.grad(), whole.weight.grad().narrow(0, 6 * group.rank(), 6)), 0);
      EXPECT_EQ(table.whole().padding_idx(), padding < 0 ? 11 : padding);
    });
  }
}

TEST(TensorParallel, CombinesWithDataParallelism) {
  Whole alone;
  optim::SGD sgd(alone.parameters(), {.lr = 0.1});
  for (int i = 0; i < 10; ++i) {
    sgd.zero_grad();
    nn::mse_loss(alone(indices_of_step(i)), target_of_step(i)).backward();
    sgd.step();
  }
  as_ranks(4, [&](ProcessGroup& group) {
    const DeviceMesh mesh(group, {{"data", 2}, {"tensor", 2}});
    Divided model(mesh["tensor"], false);
    parallel::DistributedDataParallel ddp(model, {.process_group = &mesh["data"]});
    optim::SGD own(model.parameters(), {.lr = 0.1});
    for (int i = 0; i < 10; ++i) {
      own.zero_grad();
      const std::int64_t begin = 6 * mesh.rank("data");
      nn::mse_loss(ddp(indices_of_step(i).narrow(0, begin, 6)), target_of_step(i).narrow(0, begin, 6)).backward();
      own.step();
    }
    EXPECT_LT(difference(model.up.whole().weight, alone.up.weight), 1e-12);
    EXPECT_LT(difference(model.table.whole().weight, alone.table.weight), 1e-12);
    EXPECT_LT(difference(model.down.whole().bias, alone.down.bias), 1e-12);
  });
}

Tensor loss_of_step(const Divided& model, int step) {
  return nn::mse_loss(model(indices_of_step(step)), target_of_step(step));
}

TEST(TensorParallel, NormsOfGradientsAreThoseOfTheWholeLayers) {
  for (const double norm_type : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    Whole alone;
    nn::mse_loss(alone(indices_of_step(0)), target_of_step(0)).backward();
    const double norm = optim::clip_grad_norm_(alone.parameters(), 0.01, norm_type).item();
    as_ranks(3, [&](ProcessGroup& group) {
      Divided model(group, false);
      loss_of_step(model, 0).backward();
      EXPECT_NEAR(optim::clip_grad_norm_(model.parameters(), 0.01, norm_type).item(), norm, 1e-12);
      EXPECT_LT(difference(model.norm.weight.grad(), alone.norm.weight.grad()), 1e-12);
      EXPECT_LT(difference(gather_from_group(model.up.weight.grad(), group, 0), alone.up.weight.grad()), 1e-12);
      EXPECT_LT(difference(model.down.bias.grad(), alone.down.bias.grad()), 1e-12);
    });
  }
}

TEST(TensorParallel, AnInfiniteGradientOfOnePartSkipsTheStepOnAllRanks) {
  as_ranks(2, [&](ProcessGroup& group) {
    Divided model(group, false);
    optim::Adam adam(model.parameters(), {.lr = 0.01});
    optim::GradScaler scaler({.init_scale = 8});
    const auto step = [&](int i, int bad_rank) {
      adam.zero_grad();
      scaler.scale(loss_of_step(model, i)).backward();
      if (group.rank() == bad_rank) {
        model.up.weight.grad().fill_(std::numeric_limits<double>::infinity());
      }
      scaler.step(adam);
      scaler.update();
    };
    step(0, -1);
    const Tensor before = model.norm.weight.detach().clone();
    step(1, 1);
    EXPECT_EQ(difference(model.norm.weight, before), 0);
    EXPECT_EQ(scaler.get_scale(), 4);
    step(2, -1);
    EXPECT_GT(difference(model.norm.weight, before), 0);
  });
}

TEST(TensorParallel, AnInfiniteGradientOfOnePartReachesAllRanksOfAMesh) {
  for (const int bad_rank : {0, 1, 2, 3}) {
    as_ranks(4, [&](ProcessGroup& group) {
      const DeviceMesh mesh(group, {{"data", 2}, {"tensor", 2}});
      Divided model(mesh["tensor"], false);
      parallel::DistributedDataParallel ddp(model,
                                            {.process_group = &mesh["data"], .shard = parallel::Shard::optimizer});
      optim::SGD sgd(model.parameters(), {.lr = 0.1});
      sgd.skip_nonfinite();
      const Tensor before = model.norm.weight.detach().clone();
      Tensor loss = nn::mse_loss(ddp(indices_of_step(0)), target_of_step(0));
      const auto hook = model.up.weight.register_hook([&](const Tensor& gradient) {
        return group.rank() == bad_rank ? gradient * std::numeric_limits<double>::infinity() : gradient;
      });
      loss.backward();
      sgd.step();
      EXPECT_EQ(difference(model.norm.weight, before), 0) << group.rank();
    });
  }
}

TEST(TensorParallel, NamesWhatCannotBeDivided) {
  as_ranks(2, [](ProcessGroup& group) {
    EXPECT_THAT(message_of<ConfigError>([&] { ColumnParallelLinear(linear_layer(4, 5, 1), group); }),
                HasSubstr("ColumnParallelLinear: out_features 5 is not divisible among 2 ranks"));
    EXPECT_THAT(message_of<ConfigError>([&] { RowParallelLinear(linear_layer(5, 4, 1), group); }),
                HasSubstr("RowParallelLinear: in_features 5 is not divisible among 2 ranks"));
    EXPECT_THAT(message_of<ConfigError>([&] { VocabParallelEmbedding(nn::Embedding(3, 4), group); }),
                HasSubstr("VocabParallelEmbedding: num_embeddings 3 is not divisible among 2 ranks"));
    EXPECT_THAT(message_of<ShapeError>([&] { parallel::scatter_to_group(ones({3, 4}), group, 0); }),
                HasSubstr("scatter_to_group: dimension 0 of [3, 4] is not divisible among 2 ranks"));
    EXPECT_THAT(message_of<ShapeError>([&] { parallel::reduce_scatter_to_sequence(ones({3, 4}), group); }),
                HasSubstr("reduce_scatter_to_sequence: dimension 0 of [3, 4]"));
    const VocabParallelEmbedding table(embedding_layer(), group);
    for (const std::int64_t index : {-1, 12}) {
      EXPECT_THAT(message_of<ValueError>([&] { table(from_data(std::vector<std::int64_t>{0, index, 3})); }),
                  HasSubstr(fmt::format("VocabParallelEmbedding: index {} is outside [0, 12)", index)));
    }
  });
}

TEST(TensorParallel, NamesAParameterThatIsDividedAnotherWay) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear own = linear_layer(4, 6, 1);
    parallel::divide_among(own.weight, group);
    parallel::divide_among(own.weight, group);
    const auto other = group.new_group({0, 1});
    EXPECT_THAT(message_of<ConfigError>([&] { parallel::divide_among(own.weight, *other); }),
                HasSubstr("the parameter [6, 4] is divided among the ranks of another group already"));
    EXPECT_THAT(message_of<AutogradError>([&] { parallel::divide_among(ones({2}), group); }),
                HasSubstr("divide_among: the tensor [2] is no leaf that requires a gradient"));
    EXPECT_THAT(message_of<ConfigError>(
                    [&] { parallel::DistributedDataParallel<nn::Linear> ddp(own, {.process_group = &group}); }),
                HasSubstr("the ranks of this group divide parameter 'weight' among themselves"));
  });
}

TEST(TensorParallel, NamesTheGroupThatClippingMisses) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear own = linear_layer(4, 6, 1);
    auto dividing = group.new_group({0, 1});
    parallel::divide_among(own.weight, *dividing);
    own(ones({1, 4}, {.dtype = DType::f64})).sum().backward();
    optim::SGD sgd(own.parameters(), {.lr = 0.1});
    sgd.skip_nonfinite();
    dividing.reset();
    EXPECT_THAT(message_of<ConfigError>([&] { optim::clip_grad_norm_(own.parameters(), 1); }),
                HasSubstr("the group of the ranks that divide a parameter is gone"));
    EXPECT_THAT(message_of<ConfigError>([&] { sgd.step(); }), HasSubstr("keep the group until the last step"));
  });
}

TEST(TensorParallel, KeepsFrozenLayersFrozen) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear frozen = linear_layer(4, 6, 1);
    frozen.requires_grad_(false);
    EXPECT_FALSE(ColumnParallelLinear(frozen, group).weight.requires_grad());
    EXPECT_FALSE(RowParallelLinear(frozen, group).bias.requires_grad());
    const nn::Embedding table = nn::Embedding::from_pretrained(ones({4, 2}));
    EXPECT_FALSE(VocabParallelEmbedding(table, group).weight.requires_grad());
  });
}

TEST(TensorParallel, RefusesDataParallelismOverTheRanksThatDivideALayer) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Sequential model(ColumnParallelLinear(linear_layer(4, 6, 1), group));
    EXPECT_THAT(
        message_of<ConfigError>([&] { parallel::DistributedDataParallel(model, {.process_group = &group}); }),
        HasSubstr("Rank 0 has layer '0': ColumnParallelLinear(in_features=4, out_features=6, bias=true, rank 0 of 2)"));
  });
}

TEST(TensorParallel, NamesAGroupThatIsGone) {
  as_ranks(2, [](ProcessGroup& group) {
    Tensor x = ones({4, 4});
    x.requires_grad_();
    Tensor y;
    {
      const DeviceMesh mesh(group, {{"tensor", 2}});
      y = parallel::copy_to_group(x, mesh["tensor"]).sum();
    }
    EXPECT_THAT(message_of<ConfigError>([&] { y.backward(); }), HasSubstr("the process group is gone"));
  });
}

}  // namespace
}  // namespace tandem::test

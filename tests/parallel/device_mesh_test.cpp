#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/pipeline/stages.h"
#include "parallel/ranks.h"
#include "support/message.h"

namespace tandem::test {
namespace {

using parallel::DeviceMesh;
using parallel::ProcessGroup;
using testing::HasSubstr;

TEST(DeviceMesh, NumbersRanksWithTheLastAxisFastest) {
  as_ranks(6, [](ProcessGroup& group) {
    const DeviceMesh mesh(group, {{"data", 3}, {"pipeline", 2}});
    EXPECT_EQ(mesh.size("data"), 3);
    EXPECT_EQ(mesh.size("pipeline"), 2);
    EXPECT_EQ(mesh.rank("data"), group.rank() / 2);
    EXPECT_EQ(mesh.rank("pipeline"), group.rank() % 2);
    const Tensor sum = full({1}, group.rank());
    mesh["data"].all_reduce(sum);
    EXPECT_EQ(sum.item(), group.rank() % 2 == 0 ? 0 + 2 + 4 : 1 + 3 + 5);
    const Tensor pair = full({1}, group.rank());
    mesh["pipeline"].all_reduce(pair);
    EXPECT_EQ(pair.item(), 4 * (group.rank() / 2) + 1);
  });
}

TEST(DeviceMesh, HasAnyNumberOfAxes) {
  as_ranks(4, [](ProcessGroup& group) {
    const DeviceMesh line(group, {{"all", 4}});
    EXPECT_EQ(line.rank("all"), group.rank());
    const DeviceMesh cube(group, {{"a", 2}, {"b", 1}, {"c", 2}});
    EXPECT_EQ(cube.rank("a"), group.rank() / 2);
    EXPECT_EQ(cube.size("b"), 1);
    EXPECT_EQ(cube.rank("c"), group.rank() % 2);
  });
}

TEST(DeviceMesh, NamesALayoutThatDoesNotFit) {
  const auto text_of = [](const std::vector<DeviceMesh::Axis>& axes) {
    std::string text;
    as_ranks(4, [&](ProcessGroup& group) {
      const std::string own = message_of<ConfigError>([&] { DeviceMesh(group, axes); });
      if (group.rank() == 0) {
        text = own;
      }
    });
    return text;
  };
  EXPECT_THAT(text_of({{"data", 2}, {"pipeline", 3}}),
              HasSubstr("DeviceMesh: data 2 x pipeline 3 needs 6 ranks, and the group has 4"));
  EXPECT_THAT(text_of({{"data", 4}, {"data", 1}}), HasSubstr("each axis needs a name of its own, got data 4 x data 1"));
  EXPECT_THAT(text_of({{"", 4}}), HasSubstr("each axis needs a name of its own"));
  EXPECT_THAT(text_of({{"a", 65536}, {"b", 65536}, {"c", 65536}, {"d", 65536}}),
              HasSubstr("needs at least 1048576 ranks, and the group has 4"));
  EXPECT_THAT(text_of({}), HasSubstr("no axes are given"));
  EXPECT_THAT(text_of({{"data", 0}}), HasSubstr("an axis has at least one rank, got data 0"));
  as_ranks(2, [](ProcessGroup& group) {
    EXPECT_THAT(
        message_of<ConfigError>([&] { DeviceMesh(group, {{group.rank() == 0 ? "data" : "date", 2}}); }),
        HasSubstr("DeviceMesh: the ranks' axes differ. Rank 0 has data 2; rank 1 has date 2. All ranks must make "
                  "the same mesh"));
    const DeviceMesh mesh(group, {{"data", 2}});
    EXPECT_THAT(message_of<ConfigError>([&] { mesh["pipeline"]; }),
                HasSubstr("there is no axis 'pipeline'; the axes are data 2"));
  });
}

TEST(JoinedGradients, AreThoseOfTheSameParametersOnAllRanks) {
  as_ranks(2, [](ProcessGroup& group) {
    const bool first = group.rank() == 0;
    Tensor a = zeros({1}, {.device = Device(first ? "cpu:0" : "cpu:3")}).requires_grad_();
    Tensor b = zeros({1}, {.device = Device(first ? "cpu:1" : "cpu:2")}).requires_grad_();
    (a * 1).backward();
    (b * 10).backward();
    parallel::all_reduce_gradients({a, b}, group, parallel::ReduceOp::sum);
    EXPECT_EQ(a.grad().item(), 2);
    EXPECT_EQ(b.grad().item(), 20);
  });
}

// Each pipeline trains on its part of the rows; together they train as one device on all of them.
TEST(DeviceMesh, CombinesDataParallelismAndPipelines) {
  for (const bool is_tied : {false, true}) {
    const auto make = [&] {
      manual_seed(5);
      TiedNet tied = tied_net();
      return is_tied ? static_cast<nn::Sequential&&>(std::move(tied))
                     : nn::Sequential(nn::Embedding(7, 6), nn::Linear(6, 6), nn::ReLU(), nn::Linear(6, 7));
    };
    const auto whole_batch = [](int step) {
      Generator generator(static_cast<std::uint64_t>(step));
      const GeneratorScope draws(generator);
      return Batch{randint(0, 7, {8}), randint(0, 7, {8})};
    };
    nn::Sequential alone = make();
    alone.to(DType::f64);
    optim::SGD sgd(alone.parameters(), {.lr = 0.1, .momentum = 0.9});
    for (int i = 0; i < 20; ++i) {
      sgd.zero_grad();
      const Batch batch = whole_batch(i);
      mean_loss(alone(batch.x), batch.y).backward();
      sgd.step();
    }
    const StateDict expected = alone.state_dict();
    as_ranks(4, [&](ProcessGroup& group) {
      const DeviceMesh mesh(group, {{"data", 2}, {"pipeline", 2}});
      nn::Sequential model = make();
      model.to(DType::f64);
      if (mesh.rank("data") == 1) {
        model.get_parameter("1.bias").detach().fill_(9);  // the first pipeline's values count
      }
      parallel::Pipeline pipeline(model, mesh["pipeline"], {.microbatches = 2, .average_over = &mesh["data"]});
      optim::SGD own(pipeline.parameters(), {.lr = 0.1, .momentum = 0.9});
      for (int i = 0; i < 20; ++i) {
        own.zero_grad();
        const Batch batch = whole_batch(i);
        pipeline.step(batch.x.narrow(0, 4 * mesh.rank("data"), 4), batch.y.narrow(0, 4 * mesh.rank("data"), 4),
                      mean_loss);
        own.step();
      }
      pipeline.gather_parameters();
      for (const auto& [name, tensor] : model.state_dict()) {
        EXPECT_LT(difference(tensor, expected.at(name)), 1e-12) << name << " on rank " << group.rank();
      }
    });
  }
}

}  // namespace
}  // namespace tandem::test

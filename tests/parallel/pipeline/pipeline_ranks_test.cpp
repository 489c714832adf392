#include <cstddef>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/pipeline/stages.h"
#include "parallel/ranks.h"
#include "support/message.h"

// Pipelines over ranks.

namespace tandem::test {
namespace {

using parallel::Pipeline;
using parallel::PipelineOptions;
using parallel::ProcessGroup;
using parallel::Schedule;
using testing::AllOf;
using testing::HasSubstr;

// Trains for some steps, and returns the losses.
std::vector<double> train(Pipeline& pipeline, int steps, std::int64_t rows) {
  optim::Adam adam(pipeline.parameters(), {.lr = 0.01});
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    adam.zero_grad();
    const Batch batch = rows_of_step(i, rows);
    losses.push_back(pipeline.step(batch.x, batch.y, mean_loss).item());
    adam.step();
  }
  return losses;
}

TEST(PipelineRanks, HaveTheBitsOfAPipelineInOneProcess) {
  for (const auto& [ranks, split] :
       {std::pair<int, std::vector<std::size_t>>{2, {4, 3}}, {3, {2, 3, 2}}, {4, {1, 2, 2, 2}}}) {
    for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
      const PipelineOptions options{.microbatches = 3, .schedule = schedule, .split = split};
      nn::Sequential model = noisy_net();
      manual_seed(9);
      Pipeline in_one(model, cpus(ranks), options);
      const std::vector<double> losses = train(in_one, 5, 10);
      const Values expected = values_of(model);
      as_ranks(ranks, [&](ProcessGroup& group) {
        nn::Sequential own = noisy_net();
        manual_seed(9);
        Pipeline pipeline(own, group, options);
        EXPECT_EQ(train(pipeline, 5, 10), losses);
        pipeline.gather_parameters();
        EXPECT_EQ(values_of(own), expected) << "rank " << group.rank();
      });
    }
  }
}

TEST(PipelineRanks, TrainTheirOwnLayersAlone) {
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Sequential model = plain_net();
    Pipeline pipeline(model, group, {.split = {2, 3}});
    EXPECT_EQ(pipeline.parameters().size(), group.rank() == 0 ? 2U : 4U);
    const Batch batch = rows_of_step(0, 8);
    pipeline.step(batch.x, batch.y, mean_loss);
    EXPECT_EQ(model.get_parameter("0.weight").grad().defined(), group.rank() == 0);
    EXPECT_EQ(model.get_parameter("4.weight").grad().defined(), group.rank() == 1);
  });
}

TEST(PipelineRanks, ReadOnlyTheInputsOfTheFirstAndTheTargetsOfTheLast) {
  nn::Sequential alone = plain_net();
  const Batch batch = rows_of_step(0, 8);
  const double expected = mean_loss(alone(batch.x), batch.y).item();
  as_ranks(3, [&](ProcessGroup& group) {
    nn::Sequential model = plain_net();
    Pipeline pipeline(model, group, {.split = {1, 2, 2}});
    const Tensor nothing = zeros({8});
    const Tensor loss =
        pipeline.step(group.rank() == 0 ? batch.x : nothing, group.rank() == 2 ? batch.y : nothing, mean_loss);
    EXPECT_NEAR(loss.item(), expected, 1e-14);
    EXPECT_EQ(loss.dtype(), DType::f64);
  });
}

TEST(PipelineRanks, AllGetTheOutput) {
  nn::Sequential alone = plain_net();
  const Batch batch = rows_of_step(0, 8);
  const std::vector<double> expected = alone(batch.x).to_vector<double>();
  as_ranks(3, [&](ProcessGroup& group) {
    nn::Sequential model = plain_net();
    Pipeline pipeline(model, group, {.split = {1, 2, 2}});
    EXPECT_EQ(pipeline(batch.x).to_vector<double>(), expected);
  });
}

TEST(PipelineRanks, AddUpTheGradientsOfTiedLayers) {
  const auto train_tied = [](Pipeline& pipeline) {
    optim::SGD sgd(pipeline.parameters(), {.lr = 0.1, .momentum = 0.9});
    for (int i = 0; i < 10; ++i) {
      Generator generator(static_cast<std::uint64_t>(i));
      const GeneratorScope draws(generator);
      for (int part = 0; part < 2; ++part) {  // gradients of two batches add up
        pipeline.step(randint(0, 7, {8}), randint(0, 7, {8}), mean_loss);
      }
      sgd.step();
      sgd.zero_grad();
    }
  };
  const PipelineOptions options{.microbatches = 4, .split = {1, 3, 1}};
  TiedNet model = tied_net();
  Pipeline in_one(model, cpus(3), options);
  train_tied(in_one);
  const StateDict expected = model.state_dict();
  as_ranks(3, [&](ProcessGroup& group) {
    TiedNet own = tied_net();
    Pipeline pipeline(own, group, options);
    train_tied(pipeline);
    pipeline.gather_parameters();
    for (const auto& [name, tensor] : own.state_dict()) {
      EXPECT_EQ(difference(tensor, expected.at(name)), 0) << name << " on rank " << group.rank();
    }
    // The optimiser has moved the tied weight.
    EXPECT_LT(difference(pipeline(arange(0, 7)), own(arange(0, 7))), 1e-12);
  });
}

TEST(PipelineRanks, ClipByTheNormOfAllStages) {
  const Tensor x = arange(0, 7);
  TiedNet alone = tied_net();
  mean_loss(alone(x), x).backward();
  const double expected = optim::clip_grad_norm_(alone.parameters(), 0.05).item();
  TiedNet model = tied_net();
  Pipeline in_one(model, cpus(2), {.split = {2, 3}});
  in_one.step(x, x, mean_loss);
  EXPECT_NEAR(in_one.clip_grad_norm_(0.05), expected, 1e-12);
  as_ranks(3, [&](ProcessGroup& group) {
    TiedNet own = tied_net();
    Pipeline pipeline(own, group, {.split = {2, 2, 1}});
    pipeline.step(x, x, mean_loss);
    EXPECT_NEAR(pipeline.clip_grad_norm_(0.05), expected, 1e-12);
    const Tensor tied = own.get_parameter(group.rank() == 2 ? "4.weight" : "0.weight");
    if (group.rank() != 1) {
      EXPECT_LT(difference(tied.grad(), alone.get_parameter("0.weight").grad()), 1e-12);
    }
    EXPECT_LT(difference(model.get_parameter("0.weight").grad(), alone.get_parameter("0.weight").grad()), 1e-12);
  });
}

TEST(PipelineRanks, RefuseAGroupThatIsGone) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Sequential model = plain_net();
    auto all = group.new_group({0, 1});
    Pipeline pipeline(model, *all);
    all.reset();
    const Batch batch = rows_of_step(0, 8);
    EXPECT_THAT(message_of<ConfigError>([&] { pipeline.step(batch.x, batch.y, mean_loss); }),
                HasSubstr("Pipeline: its process group is gone"));
    EXPECT_THROW(pipeline.report(), ConfigError);
    EXPECT_THROW(pipeline.gather_parameters(), ConfigError);
  });
}

TEST(PipelineRanks, ReportAllStages) {
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Sequential model = plain_net();
    Pipeline pipeline(model, group, {.split = {2, 3}});
    train(pipeline, 3, 8);
    const parallel::PipelineReport report = pipeline.report();
    ASSERT_EQ(report.stages.size(), 2U);
    EXPECT_EQ(report.stages[0].name, "stage 0 of 2, layers 0-1, rank 0");
    EXPECT_EQ(report.stages[0].most_in_flight, 2U);
    EXPECT_EQ(report.stages[1].passes, 8);
    EXPECT_GT(report.stages[1].backward, 0);
  });
}

TEST(PipelineRanks, RefuseModelsAndOptionsThatDiffer) {
  const auto text_on_all = [](const std::function<void(ProcessGroup&)>& body) {
    std::vector<std::string> texts;
    std::mutex mutex;
    as_ranks(2, [&](ProcessGroup& group) {
      const std::string text = message_of<ConfigError>([&] { body(group); });
      const std::lock_guard lock(mutex);
      texts.push_back(text);
    });
    EXPECT_EQ(texts.front(), texts.back());
    return texts.front();
  };
  EXPECT_THAT(
      text_on_all([](ProcessGroup& group) {
        nn::Sequential model(nn::Linear(2, 3), nn::Linear(3, 4 + group.rank()));
        Pipeline(model, group);
      }),
      HasSubstr("Pipeline: the ranks' models differ. Rank 0 has layer '1': Linear(in_features=3, out_features=4, "
                "bias=true); rank 1 has layer '1': Linear(in_features=3, out_features=5"));
  EXPECT_THAT(
      text_on_all([](ProcessGroup& group) {
        nn::Sequential model = plain_net();
        Pipeline(model, group, {.microbatches = 2 * group.rank()});
      }),
      HasSubstr("Pipeline: the ranks' options differ. Rank 0 has microbatches = 0, schedule = one_f_one_b, split "
                "= [], average_over = none; rank 1 has microbatches = 2"));
  EXPECT_THAT(text_on_all([](ProcessGroup& group) {
                nn::Sequential model(nn::Linear(2, 3));
                group.rank() == 0 ? model.push_back(nn::ReLU()) : model.push_back(nn::Tanh());
                Pipeline(model, group);
              }),
              HasSubstr("Rank 0 has layer '1': ReLU(); rank 1 has layer '1': Tanh()"));
  EXPECT_THAT(
      text_on_all([](ProcessGroup& group) {
        nn::Sequential model = plain_net();
        Pipeline(model, group, {.average_over = &group});
      }),
      HasSubstr("the ranks' stages differ. Rank 0 has stage 0 of 2; rank 1 has stage 1 of 2. average_over is the "
                "group of the ranks that have the same stage"));
}

TEST(PipelineRanks, RefuseBatchesOfOtherSizes) {
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Sequential model = plain_net();
    Pipeline pipeline(model, group, {.split = {2, 3}});
    const Batch batch = rows_of_step(0, group.rank() == 0 ? 8 : 3);
    try {
      pipeline.step(batch.x, batch.y, mean_loss);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0 called step() with 8 rows, and this rank step() with 3"));
    }
  });
}

TEST(PipelineRanks, EndTogetherWhenAStageFails) {
  for (const int bad : {0, 1, 2}) {
    as_ranks(3, [&](ProcessGroup& group) {
      struct Fails : nn::Module<Fails> {
        Tensor forward(const Tensor&) const { throw std::runtime_error("no luck"); }
      };
      nn::Sequential model;
      for (int stage = 0; stage < 3; ++stage) {
        stage == bad ? model.push_back(Fails()) : model.push_back(nn::Linear(6, 6));
      }
      Pipeline pipeline(model, group, {.split = {1, 1, 1}});
      const Batch batch = rows_of_step(0, 8);
      try {
        pipeline.step(batch.x.to(DType::f32), batch.y, mean_loss);
        ADD_FAILURE() << "nothing was thrown on rank " << group.rank();
      } catch (const CommError& error) {
        EXPECT_NE(group.rank(), bad);
        EXPECT_THAT(error.what(), AllOf(HasSubstr("no luck"), HasSubstr("stage " + std::to_string(bad))));
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(group.rank(), bad);
        EXPECT_THAT(error.what(), HasSubstr("no luck"));
      }
    });
  }
}

TEST(PipelineRanks, EndTogetherWhateverALossThrows) {
  as_ranks(2, [&](ProcessGroup& group) {
    nn::Sequential model = plain_net();
    Pipeline pipeline(model, group, {.split = {2, 3}});
    const Batch batch = rows_of_step(0, 8);
    const auto throws = [](const Tensor&, const Tensor&) -> Tensor { throw 3; };
    try {
      pipeline.step(batch.x, batch.y, throws);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const CommError& error) {
      EXPECT_EQ(group.rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr("what was thrown is not a std::exception"));
    } catch (int) {
      EXPECT_EQ(group.rank(), 1);
    }
  });
}

TEST(PipelineRanks, NameATiedWeightThatOneOfThemFroze) {
  as_ranks(2, [&](ProcessGroup& group) {
    TiedNet model = tied_net();
    Pipeline pipeline(model, group, {.split = {2, 3}});
    if (group.rank() == 1) {
      model.get_parameter("4.weight").requires_grad_(false);
    }
    try {
      pipeline.step(arange(0, 7), arange(0, 7), mean_loss);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("which several stages have, was frozen or thawed since"));
    }
  });
}

}  // namespace
}  // namespace tandem::test

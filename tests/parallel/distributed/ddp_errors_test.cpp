#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"
#include "support/warnings.h"

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;

struct TwoLayers : nn::Module<TwoLayers> {
  nn::Linear first = child("first", nn::Linear(2, 2));
  nn::Linear second = child("second", nn::Linear(2, 2));
  nn::ModuleList<nn::Linear> more = child("more", nn::ModuleList<nn::Linear>());
  Tensor forward(const Tensor& x) const { return second(first(x)); }
};

/// The message of the E that each rank's body throws; empty if the rank throws nothing.
template <class E>
std::vector<std::string> messages(int ranks, const std::function<void(ProcessGroup&)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  as_ranks(ranks, [&](ProcessGroup& group) {
    try {
      body(group);
    } catch (const E& error) {
      texts[static_cast<std::size_t>(group.rank())] = test::without_code(error.what());
    }
  });
  return texts;
}

TEST(DdpErrors, ModelsThatDifferAreNamedOnEveryRank) {
  const auto texts = messages<ConfigError>(3, [](ProcessGroup& group) {
    nn::Linear layer(2, group.rank() == 2 ? 5 : 4);
    DistributedDataParallel ddp(layer);
  });
  for (const std::string& text : texts) {
    EXPECT_EQ(
        text,
        "DistributedDataParallel: the ranks' models differ. Rank 0 has parameter 'weight': f32 [4, 2], strides "
        "[2, 1], trained; rank 2 has parameter 'weight': f32 [5, 2], strides [2, 1], trained. All ranks must build "
        "the same model, and freeze the same parameters, before they wrap it");
  }
}

TEST(DdpErrors, ModelsThatDifferInWhatIsTrained) {
  const auto texts = messages<ConfigError>(2, [](ProcessGroup& group) {
    nn::Linear layer(2, 4);
    layer.bias.requires_grad_(group.rank() == 0);
    DistributedDataParallel ddp(layer);
  });
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("'bias': f32 [4], strides [1], trained; rank 1 has parameter 'bias': f32 [4], strides [1], "
                        "frozen"),
              std::string::npos)
        << text;
  }
}

TEST(DdpErrors, ModelsThatDifferInLength) {
  const auto texts = messages<ConfigError>(2, [](ProcessGroup& group) {
    nn::Linear layer(2, 4, {.bias = group.rank() == 1});
    DistributedDataParallel ddp(layer);
  });
  EXPECT_NE(texts[0].find("Rank 0 has nothing more; rank 1 has parameter 'bias'"), std::string::npos) << texts[0];
  EXPECT_EQ(texts[0], texts[1]);
}

struct Stack : nn::Module<Stack> {
  nn::Linear first = child("first", nn::Linear(2, 2, {.bias = false}));
  nn::Linear second = child("second", nn::Linear(2, 2, {.bias = false}));
  nn::Linear third = child("third", nn::Linear(2, 2, {.bias = false}));
  nn::Linear fourth = child("fourth", nn::Linear(2, 2, {.bias = false}));
  Tensor forward(const Tensor& x) const { return fourth(third(second(first(x)))); }
};

// The ranges of memory have equal sizes on both ranks.
TEST(DdpErrors, ParametersThatLieInAnotherOrderOnSomeRank) {
  const auto texts = messages<ConfigError>(2, [](ProcessGroup& group) {
    Stack model;
    std::vector<Tensor> parameters = model.parameters();
    if (group.rank() == 1) {
      std::swap(parameters[1], parameters[2]);
    }
    optim::SGD sgd(parameters, {.lr = 0.1});
    DistributedDataParallel ddp(model);
  });
  EXPECT_EQ(texts[0],
            "DistributedDataParallel: the ranks' places of gradients differ. Rank 0 has the "
            "gradient of 'third.weight' [2, 2] as number 1 in memory; rank 1 has the gradient of 'second.weight' [2, "
            "2] as number 1 in memory. Gradients lie in memory in the order in "
            "which an optimiser that was made before got the parameters: let it be the same on all ranks, or make "
            "optimisers after wrapping");
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(DdpErrors, NothingToTrain) {
  const auto texts = messages<ConfigError>(1, [](ProcessGroup&) {
    nn::Linear layer(2, 4);
    layer.requires_grad_(false);
    DistributedDataParallel ddp(layer);
  });
  EXPECT_EQ(texts[0], "DistributedDataParallel: the module has no parameter that requires a gradient; use it as it is");
}

TEST(DdpErrors, WithoutAGroup) {
  nn::Linear layer(2, 4);
  EXPECT_NE(message_of<ConfigError>([&] { DistributedDataParallel ddp(layer); }).find("ProcessGroupGuard"),
            std::string::npos);
}

TEST(DdpErrors, WrappedTwice) {
  const auto texts = messages<ConfigError>(1, [](ProcessGroup&) {
    nn::Linear layer(2, 4);
    DistributedDataParallel ddp(layer);
    DistributedDataParallel again(layer);
  });
  EXPECT_EQ(texts[0],
            "DistributedDataParallel: parameter 'weight' belongs to another DistributedDataParallel already; wrap a "
            "module once, or again when that wrapper and the losses computed through it are gone");
}

struct Choosy : nn::Module<Choosy> {
  nn::Linear always = child("always", nn::Linear(2, 2));
  nn::Linear sometimes = child("sometimes", nn::Linear(2, 2));
  bool uses_both = true;
  Tensor forward(const Tensor& x) const { return uses_both ? sometimes(always(x)) : always(x); }
};

TEST(DdpErrors, AnUnusedParameterIsNamedInTheSameBackwardOnAllRanks) {
  for (const int culprit : {0, 1, 2}) {
    std::vector<std::string> texts(3);
    as_ranks(3, [&](ProcessGroup& group) {
      Choosy model;
      model.uses_both = group.rank() != culprit;
      DistributedDataParallel ddp(model, {.bucket_cap_mb = 1e-6});
      try {
        ddp(ones({1, 2})).sum().backward();
      } catch (const AutogradError& error) {
        texts[static_cast<std::size_t>(group.rank())] = error.what();
        EXPECT_EQ(group.rank(), culprit);
      } catch (const CommError& error) {
        texts[static_cast<std::size_t>(group.rank())] = error.what();
        EXPECT_EQ(error.details().rank, culprit);
      }
      EXPECT_FALSE(model.always.weight.grad().defined()) << "an optimiser must not step by it";
    });
    for (const std::string& text : texts) {
      EXPECT_NE(text.find(fmt::format("rank {} has no gradient of 2 parameters in this backward pass: "
                                      "'sometimes.bias', 'sometimes.weight'. Each parameter must take part in each "
                                      "loss; freeze those that never do, before wrapping, or pass "
                                      "{{.find_unused_parameters = true}}",
                                      culprit)),
                std::string::npos)
          << text;
    }
  }
}

// The replicas of a DataParallel make one node, with an edge to each parameter. So a backward pass reaches a parameter
// that forward() does not use, and brings it no gradient.
struct Choosier : nn::Module<Choosier> {
  Choosy choosy = child("choosy", Choosy());
  std::vector<Device> devices;
  explicit Choosier(int rank) {
    choosy.uses_both = false;
    devices = {choosy.always.weight.device(), Device(DeviceType::cpu, 2 + rank)};
  }
  Tensor forward(const Tensor& x) const { return parallel::data_parallel(choosy, x, devices); }
};

TEST(DdpErrors, AParameterThatABackwardPassReachesInVainIsNamedOnAllRanks) {
  if (core::thread_state().device.type == DeviceType::cuda) {
    GTEST_SKIP() << "one GPU";
  }
  std::vector<std::string> texts(2);
  as_ranks(2, [&](ProcessGroup& group) {
    Choosier model(group.rank());
    model.choosy.uses_both = group.rank() == 1;
    DistributedDataParallel ddp(model, {.bucket_cap_mb = 1e-6});
    std::string& text = texts[static_cast<std::size_t>(group.rank())];
    const auto train = [&] { ddp(ones({2, 2})).sum().backward(); };
    text = group.rank() == 0 ? message_of<AutogradError>(train) : message_of<CommError>(train);
    EXPECT_FALSE(model.choosy.always.weight.grad().defined()) << "an optimiser must not step by it";
  });
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("rank 0 has no gradient of 2 parameters in this backward pass: "
                        "'choosy.sometimes.bias', 'choosy.sometimes.weight'. Each parameter must take part"),
              std::string::npos)
        << text;
  }
}

TEST(DdpUnused, AParameterThatABackwardPassReachesInVainGetsNoGradientAndNoWarning) {
  if (core::thread_state().device.type == DeviceType::cuda) {
    GTEST_SKIP() << "one GPU";
  }
  std::vector<std::string> warnings;
  set_warning_handler([&](const std::string& text) { warnings.push_back(text); });  // warnings of rank 0 only
  as_ranks(2, [](ProcessGroup& group) {
    Choosier model(group.rank());
    DistributedDataParallel ddp(model, {.find_unused_parameters = true});
    ddp(ones({2, 2})).sum().backward();
    EXPECT_EQ(model.choosy.always.bias.grad().to("cpu:0").to_vector<float>(), std::vector<float>(2, 2.0F));
    EXPECT_FALSE(model.choosy.sometimes.bias.grad().defined());
    model.zero_grad();
    model.choosy.uses_both = group.rank() == 1;
    ddp(ones({2, 2})).sum().backward();
    EXPECT_EQ(model.choosy.sometimes.bias.grad().to("cpu:0").to_vector<float>(), std::vector<float>(2, 1.0F));
  });
  set_warning_handler({});
  EXPECT_TRUE(warnings.empty()) << warnings.front();
}

TEST(DdpErrors, BackwardThroughTheModuleItself) {
  as_ranks(2, [](ProcessGroup&) {
    nn::Linear layer(2, 1);
    DistributedDataParallel ddp(layer);
    EXPECT_EQ(message_of<AutogradError>([&] { ddp.module()(ones({1, 2})).sum().backward(); }),
              "DistributedDataParallel: parameter 'weight' got a gradient in a backward pass in which no output of the "
              "wrapped module took part, as when ddp.module() is called itself: it would be that of this rank alone. "
              "Call ddp(...), and within ddp.no_sync() where gradients are to stay local");
    EXPECT_FALSE(layer.weight.grad().defined());
    ddp(ones({1, 2})).sum().backward();  // the group is unchanged
  });
}

TEST(DdpErrors, AFailingBackwardOfOneRankEndsTheOthers) {
  std::string text;
  as_ranks(2, [&](ProcessGroup& group) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.bucket_cap_mb = 1e-6});
    const Batch batch = batch_of(4);
    if (group.rank() == 1) {
      model.fc1.weight.register_hook([](const Tensor&) -> Tensor { throw ValueError("the hook does not like it"); });
      EXPECT_THROW(nn::cross_entropy(ddp(batch.x), batch.y).backward(), ValueError);
    } else {
      text = message_of<CommError>([&] { nn::cross_entropy(ddp(batch.x), batch.y).backward(); });
    }
  });
  EXPECT_NE(text.find("aborted by rank 1: its backward pass failed: the hook does not like it"), std::string::npos)
      << text;
}

TEST(DdpErrors, ParametersThatChangedSinceTheyWereWrapped) {
  as_ranks(1, [](ProcessGroup&) {
    const auto message = [](const std::function<void(TwoLayers&)>& change) {
      TwoLayers model;
      model.second.bias.requires_grad_(false);
      DistributedDataParallel ddp(model);
      change(model);
      return message_of<ConfigError>([&] { ddp(ones({1, 2})); });
    };
    EXPECT_EQ(
        message([](TwoLayers& model) { model.to(DType::f64); }),
        "DistributedDataParallel: parameter 'second.weight' was moved to another device or dtype after the module "
        "was wrapped; move it first, then wrap it");
    EXPECT_EQ(message([](TwoLayers& model) { model.first.weight.requires_grad_(false); }),
              "DistributedDataParallel: parameter 'first.weight' was frozen after the module was wrapped; freeze it on "
              "all ranks, then wrap the module again");
    EXPECT_EQ(message([](TwoLayers& model) { model.second.bias.requires_grad_(true); }),
              "DistributedDataParallel: parameter 'second.bias' requires a gradient since the module was wrapped; thaw "
              "it on all ranks, then wrap the module again");
    EXPECT_EQ(
        message([](TwoLayers& model) { model.more.push_back(nn::Linear(2, 2)); }),
        "DistributedDataParallel: the module has 6 parameters, and had 4 when it was wrapped; build it first, then "
        "wrap it");
  });
}

TEST(DdpErrors, WithinAReplicaOfDataParallel) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(2, 1);
    DistributedDataParallel ddp(layer);
    parallel::Replicas replicas = parallel::replicate(layer, {"cpu:0", "cpu:1"});
    const std::string text = message_of<ConfigError>([&] {
      parallel::parallel_apply([&](const Tensor& x) { return ddp(x); },
                               std::vector<std::tuple<Tensor>>{{ones({1, 2})}, {ones({1, 2})}}, replicas);
    });
    EXPECT_NE(text.find("called within a replica of DataParallel"), std::string::npos) << text;
  });
}

TEST(DdpErrors, AGroupThatIsGone) {
  nn::Linear layer(2, 1);
  auto group = std::move(parallel::local_groups(1).front());
  DistributedDataParallel ddp(layer, {.process_group = group.get()});
  const Tensor loss = ddp(ones({1, 2})).sum();
  group.reset();
  const std::string expected =
      "DistributedDataParallel: its process group is gone; keep it (ProcessGroupGuard) for as long as the module is "
      "trained";
  EXPECT_EQ(message_of<ConfigError>([&] { ddp(ones({1, 2})); }), expected);
  EXPECT_THAT(message_of<ConfigError>([&] { loss.backward(); }), testing::HasSubstr(expected));
}

struct ScaledByABuffer : nn::Module<ScaledByABuffer> {
  nn::Linear fc = child("fc", nn::Linear(2, 1));
  Buffer scale = buffer("scale", ones({1}));
  Tensor forward(const Tensor& x) const { return fc(x) * scale; }
};

TEST(DdpErrors, ABufferThatRequiresAGradient) {
  const std::string expected =
      "DistributedDataParallel: buffer 'scale' requires a gradient, which would be that of each rank alone: register "
      "it as a parameter, or keep it out of the graph (requires_grad_(false), detach())";
  as_ranks(2, [&](ProcessGroup&) {
    ScaledByABuffer model;
    model.scale.requires_grad_();
    EXPECT_EQ(message_of<ConfigError>([&] { DistributedDataParallel{model}; }), expected);
    model.scale.requires_grad_(false);
    DistributedDataParallel ddp(model);
    ddp(ones({1, 2})).sum().backward();
    model.scale.requires_grad_();
    EXPECT_EQ(message_of<ConfigError>([&] { ddp(ones({1, 2})); }), expected);
  });
}

TEST(DdpErrors, LayersThatAreNotRegistered) {
  struct Unregistered : nn::Module<Unregistered> {
    nn::Linear fc = nn::Linear(2, 1);
    Tensor forward(const Tensor& x) const { return fc(x); }
  };
  as_ranks(1, [](ProcessGroup&) {
    Unregistered model;
    EXPECT_EQ(message_of<ConfigError>([&] { DistributedDataParallel{model}; }),
              "DistributedDataParallel: the module has no parameter that requires a gradient, nor any other; register "
              "its layers: nn::Linear fc = child(\"fc\", nn::Linear(6, 3))");
  });
}

TEST(DdpErrors, ABatchWithoutSamplesOutsideOfAJoin) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(2, 1);
    DistributedDataParallel ddp(layer);
    if (group.rank() == 1) {
      EXPECT_EQ(
          message_of<ConfigError>([&] { ddp(ones({0, 2})); }),
          "DistributedDataParallel: the batch [0, 2] of rank 1 has no samples, and would make the gradients of all "
          "other ranks count for less. Leave it out and use a Join, in which ranks may have unequal numbers of "
          "batches");
    }
    const NoGradGuard no_grad;
    EXPECT_EQ(ddp(ones({0, 2})).shape(), Shape({0, 1})) << "evaluation may have any rows";
  });
}

// Each rank tells of its own, in the pass in which it happens, and once.
TEST(DdpErrors, ANanInOneRanksLossIsToldByThatRank) {
  Warnings warnings;
  as_ranks(3, [](ProcessGroup& group) {
    nn::Linear layer(2, 1);
    DistributedDataParallel ddp(layer);
    for (int step = 0; step < 3; ++step) {
      const Tensor loss = ddp(ones({1, 2})).mean();
      (group.rank() == 1 && step > 0 ? loss * std::nan("") : loss).backward();
      EXPECT_EQ(std::isnan(layer.weight.grad().sum().item()), step > 0);
    }
  });
  EXPECT_THAT(warnings.texts(),
              testing::ElementsAre("rank 1: its loss gives DistributedDataParallel #0 a gradient with NaN, "
                                   "which the mean carries to all ranks"));
}

struct ReturnsLoss : nn::Module<ReturnsLoss> {
  nn::Linear layer = child("layer", nn::Linear(2, 1));
  Tensor forward(const Tensor& x) const { return layer(x).mean(); }
};

TEST(DdpErrors, ANanInALossThatTheModuleReturnsIsToldByItsRank) {
  Warnings warnings;
  as_ranks(2, [](ProcessGroup& group) {
    ReturnsLoss model;
    DistributedDataParallel ddp(model);
    ddp(full({1, 2}, group.rank() == 1 ? std::nan("") : 1.0)).backward();
  });
  EXPECT_THAT(warnings.texts(),
              testing::ElementsAre("rank 1: its loss is NaN and gives DistributedDataParallel #0 such "
                                   "gradients, which the mean carries to all ranks"));
}

TEST(DdpErrors, ASecondHook) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(2, 1);
    DistributedDataParallel ddp(layer);
    ddp.register_comm_hook(parallel::bf16_compress_hook());
    EXPECT_EQ(message_of<ConfigError>([&] { ddp.register_comm_hook(parallel::bf16_compress_hook()); }),
              "register_comm_hook: there is a hook already");
    EXPECT_EQ(message_of<ConfigError>([&] { ddp.register_comm_hook({}); }),
              "register_comm_hook: the hook is an empty function");
  });
}

}  // namespace
}  // namespace tandem::test

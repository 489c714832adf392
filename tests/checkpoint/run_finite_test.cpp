#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "checkpoint/small_run.h"
#include "support/message.h"
#include "support/temp_dir.h"

// A run meets gradients, losses and weights that are not finite.

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(RunWatch, StopsBeforeAnUpdateThatIsNotFinite) {
  for (const double factor : {HUGE_VAL, std::nan("")}) {
    for (const bool captured : {false, true}) {
      const TempDir dir;
      Small small;
      checkpoint::Run run(dir.file("run"), {.every = 2});
      run.track(small.model, small.sgd);
      auto step = graph::capture([&](const Tensor& x) {
        small.sgd.zero_grad();
        Tensor loss = small.model(x).sum();
        loss.backward();
        small.sgd.step();
        return loss;
      });
      const auto train = [&](double value) { return captured ? step(full({1, 2}, value)) : small.train(value); };
      for (int i = 0; i < 5; ++i) {
        run.step(train(1));
      }
      const std::vector<float> weights = small.weights();
      const Tensor loss = train(factor);
      EXPECT_THAT(message_of<ValueError>([&] { run.step(loss); }),
                  AllOf(StartsWith("step 6 (epoch 0): a gradient is not finite, first that of 'model.weight', nor is "
                                   "the loss, so optimizer left this update out. The checkpoint of step 4 in "),
                        HasSubstr(" is not touched by this. Resumed, the run looks at this step")));
      EXPECT_EQ(small.weights(), weights);
      EXPECT_THAT(steps_in(dir), ElementsAre(4, 2));  // written before the error, which promises them
    }
  }
}

// The weights of the second layer are infinite in step 6. All gradients are then NaN, and only the forward pass tells
// where that began.
TEST(RunWatch, NamesTheFirstLayerThatIsNotFiniteWhenItResumes) {
  const TempDir dir;
  const auto train = [&] {
    nn::Sequential model(nn::Linear(2, 4), nn::Linear(4, 4), nn::Linear(4, 1));
    optim::SGD sgd(model.parameters(), {.lr = 0.5});
    checkpoint::Run run(dir.file("run"), {.every = 2});
    run.track(model, sgd);
    for (;;) {
      sgd.zero_grad();
      Tensor hidden = model.get_submodule("1").get_parameter("weight");
      Tensor x = ones({1, 2});
      if (run.steps() == 5) {
        const NoGradGuard no_grad;
        hidden.fill_(HUGE_VAL);
      }
      Tensor loss = model(x).sum() * 1e-3;
      loss.backward();
      sgd.step();
      run.step(loss);
    }
  };
  EXPECT_THAT(message_of<ValueError>(train), StartsWith("step 6 (epoch 0): a gradient is not finite"));
  EXPECT_THAT(
      message_of<ValueError>(train),
      AllOf(StartsWith("step 6 (epoch 0): a gradient is not finite"),
            HasSubstr("; the first of this step: Linear '1': the result [1, 4] has "), HasSubstr(" at element 0. ")));
  EXPECT_FALSE(core::thread_state().detects_anomaly);
}

TEST(RunWatch, ForgetsAStepThatIsFiniteTheNextTime) {
  const TempDir dir;
  for (const bool is_bad : {true, false}) {
    Small small;
    checkpoint::Run run(dir.file("run"), {.every = 1});
    run.track(small.model, small.sgd);
    if (is_bad) {
      run.step(small.train());
      EXPECT_THROW(run.step(small.train(HUGE_VAL)), ValueError);
      EXPECT_TRUE(fs::exists(dir.file("run/checkpoints/not-finite")));
    } else {
      small.model(full({1, 2}, HUGE_VAL)).sum();  // infinite on purpose, as a mask is
      run.step();
      EXPECT_FALSE(fs::exists(dir.file("run/checkpoints/not-finite")));
    }
  }
}

struct TiedNet : nn::Module<TiedNet> {
  Parameter second = parameter("z", ones({2}));
  Parameter first = parameter("a", ones({2}));
  Tensor counts = buffer("counts", zeros({2}));
  TiedNet() { tie(first, second); }
  Tensor forward(const Tensor& x) const { return x * second; }
};

TEST(RunWatch, LooksAtTiedParametersBuffersAndMomentsBeforeItSaves) {
  const auto refusal = [](const auto& change) {
    const TempDir dir;
    TiedNet model;
    optim::Adam adam(model.parameters());
    model(ones({2})).sum().backward();
    adam.step();
    checkpoint::Run run(dir.file("run"));
    run.track(model, adam);
    const NoGradGuard no_grad;
    change(model, adam);
    std::string text;
    try {
      run.save();
    } catch (const ValueError& error) {
      text = error.what();
    }
    return text.substr(0, text.find(" is not finite"));
  };
  EXPECT_EQ(refusal([](TiedNet& model, auto&) { model.second.fill_(HUGE_VAL); }), "step 0: 'model.a'");
  EXPECT_EQ(refusal([](TiedNet& model, auto&) { model.counts.fill_(std::nan("")); }), "step 0: 'model.counts'");
  EXPECT_EQ(refusal([](TiedNet& model, auto&) { model.counts.fill_(-HUGE_VAL); }), "") << "as a mask is";
  EXPECT_EQ(refusal([](auto&, optim::Adam& adam) {
              StateDict state = adam.state_dict().clone();
              state.set("state.0.exp_avg_sq", full({2}, HUGE_VAL));
              adam.load_state_dict(state);
            }),
            "step 0: 'optimizer.state.0.exp_avg_sq'");
}

TEST(RunWatch, DoesNotSaveWeightsThatAreNotFinite) {
  const TempDir dir;
  Small small;
  checkpoint::Run run(dir.file("run"));
  run.track(small.model, small.sgd);
  run.step(small.train());
  run.save();
  {
    const NoGradGuard no_grad;
    small.model.bias[1].fill_(std::numeric_limits<double>::infinity());
  }
  run.step();
  EXPECT_EQ(message_of<ValueError>([&] { run.save(); }),
            "step 2: 'model.bias' is not finite, so this state was not saved; the checkpoints before it are as they "
            "were");
  EXPECT_THAT(steps_in(dir), ElementsAre(1));
}

TEST(RunWatch, LeavesTheOptimiserAsItWas) {
  const TempDir dir;
  Small small;
  {
    checkpoint::Run run(dir.file("run"));
    run.track(small.model, small.sgd);
  }
  small.train(std::nan(""));
  EXPECT_TRUE(std::isnan(small.weights().front()));
}

}  // namespace
}  // namespace tandem::test

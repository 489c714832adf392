#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/spatial.h>
#include <tandem/nn/conv.h>
#include <tandem/tandem.h>

#include "support/gpu.h"
#include "support/message.h"

// fold_batch_norm: the results of the model as it was, and a state dict that stands for the folded one.

namespace tandem::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr TensorOptions kF64{.dtype = DType::f64};

struct Block : nn::Module<Block> {
  nn::Conv2d conv1 = child("conv1", nn::Conv2d(3, 4, 3, {.padding = 1, .bias = false}));
  nn::BatchNorm2d bn1 = child("bn1", nn::BatchNorm2d(4));
  nn::Conv2d conv2 = child("conv2", nn::Conv2d(4, 6, 3, {.stride = 2, .groups = 2}));
  nn::BatchNorm2d norm2 = child("norm2", nn::BatchNorm2d(6));
  nn::Sequential shortcut =
      child("shortcut", nn::Sequential(nn::Conv2d(3, 6, 3, {.stride = 2, .bias = false}), nn::BatchNorm2d(6)));
  nn::Linear fc = child("fc", nn::Linear(6, 5, {.bias = false}));
  nn::BatchNorm1d bn = child("bn", nn::BatchNorm1d(5));
  Tensor forward(const Tensor& x) const {
    const Tensor sum = norm2(conv2(relu(bn1(conv1(x))))) + shortcut(x);
    return bn(fc(adaptive_avg_pool2d(relu(sum), 1).flatten(1)));
  }
};

// The largest difference of elements.
double apart(const Tensor& a, const Tensor& b) { return (a.detach() - b.detach()).abs().max().to(DType::f64).item(); }

// A model whose norms have seen batches and have weights of their own.
template <class M>
void prepare(M& model, const Tensor& x) {
  manual_seed(3);
  model.to(DType::f64);
  const NoGradGuard no_grad;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (parameter.dim() == 1) {
      Tensor(parameter).copy_(rand(parameter.shape(), kF64) + 0.5);
    }
  }
  for (int i = 0; i < 3; ++i) {
    model(x);
  }
  model.eval();
}

template <class M>
std::vector<std::string> fold(M& model, const Tensor& x) {
  return nn::fold_batch_norm(model, [&] { return model(x); });
}

Tensor images() {
  manual_seed(1);
  return randn({4, 3, 9, 9}, kF64) * 2 + 1;
}

TEST(FoldBatchNorm, KeepsTheResultsOfPairsInSequencesAndByName) {
  const Tensor x = images();
  Block model;
  prepare(model, x);
  const Tensor before = model(x).detach();
  EXPECT_THAT(fold(model, x), ElementsAre("conv1 + bn1", "conv2 + norm2", "shortcut.0 + shortcut.1", "fc + bn"));
  EXPECT_LT(apart(model(x), before), 1e-12);
  EXPECT_THAT(fold(model, x), IsEmpty());
}

TEST(FoldBatchNorm, LeavesOutTheNormsPass) {
  const Tensor x = images();
  nn::Sequential model(nn::Conv2d(3, 4, 3, {.bias = false}), nn::BatchNorm2d(4), nn::ReLU());
  prepare(model, x);
  const NoGradGuard no_grad;
  auto predict = graph::capture([&](Tensor in) { return model(in); });
  const auto launches = [&] {
    for (int i = 0; i < 3; ++i) {
      predict(x);
    }
    return predict.stats().launches;
  };
  const Tensor before = predict(x).clone();
  const std::size_t with_norm = launches();
  nn::fold_batch_norm(model);
  EXPECT_EQ(launches(), with_norm - 1);
  EXPECT_LT(apart(predict(x), before), 1e-12);
}

TEST(FoldBatchNorm, SavesAStateOfTheSameResults) {
  const Tensor x = images();
  Block model;
  prepare(model, x);
  fold(model, x);
  Block other;
  other.to(DType::f64);
  other.load_state_dict(model.state_dict());
  other.eval();
  EXPECT_LT(apart(other(x), model(x)), 1e-12);
}

TEST(FoldBatchNorm, IsUndoneByLoadingAState) {
  const Tensor x = images();
  Block model;
  prepare(model, x);
  const Tensor before = model(x).detach();
  StateDict state;
  for (const auto& [name, tensor] : model.state_dict()) {
    state.set(name, tensor.clone());
  }
  fold(model, x);
  auto predict = graph::capture([&](Tensor in) { return model(in).detach(); });
  predict(x);
  predict(x);
  model.load_state_dict(state);
  EXPECT_EQ(apart(model(x), before), 0);
  EXPECT_EQ(apart(predict(x), before), 0);
}

TEST(FoldBatchNorm, TrainsAndMovesAsTheModelThatItsStateMeans) {
  const Tensor x = images();
  Block folded;
  prepare(folded, x);
  fold(folded, x);
  Block plain;
  plain.to(DType::f64);
  plain.load_state_dict(folded.state_dict());
  for (Block* model : {&folded, &plain}) {
    model->train();
    (*model)(x);
    model->eval();
  }
  EXPECT_LT(apart(folded(x), plain(x)), 1e-12);
  folded.to(DType::f32);
  plain.to(DType::f32);
  EXPECT_EQ(apart(folded(x.to(DType::f32)), plain(x.to(DType::f32))), 0);
}

TEST(FoldBatchNorm, LeavesWhatIsNoPair) {
  struct PreActivation : nn::Module<PreActivation> {
    nn::BatchNorm2d bn1 = child("bn1", nn::BatchNorm2d(3));
    nn::Conv2d conv1 = child("conv1", nn::Conv2d(3, 4, 3));
    nn::BatchNorm2d bn2 = child("bn2", nn::BatchNorm2d(4));
    nn::Conv2d conv2 = child("conv2", nn::Conv2d(4, 4, 3));
    Tensor forward(const Tensor& x) const { return conv2(relu(bn2(conv1(relu(bn1(x)))))); }
  } model;
  const Tensor x = images();
  prepare(model, x);
  const Tensor before = model(x).detach();
  EXPECT_THAT(nn::fold_batch_norm(model), IsEmpty());
  EXPECT_EQ(apart(model(x), before), 0);

  nn::Sequential no_statistics(nn::Conv2d(3, 4, 3), nn::BatchNorm2d(4, {.track_running_stats = false}));
  nn::Sequential no_bias(nn::Conv2d(3, 4, 3, {.bias = false}), nn::BatchNorm2d(4, {.affine = false}));
  nn::Sequential between(nn::Conv2d(3, 4, 3), nn::ReLU(), nn::BatchNorm2d(4));
  for (nn::Sequential* net : {&no_statistics, &no_bias, &between}) {
    net->eval();
    EXPECT_THAT(nn::fold_batch_norm(*net), IsEmpty());
  }
}

TEST(FoldBatchNorm, FoldsANormWithoutParameters) {
  const Tensor x = images();
  nn::Sequential model(nn::Conv2d(3, 4, 3), nn::BatchNorm2d(4, {.affine = false}));
  prepare(model, x);
  const Tensor before = model(x).detach();
  EXPECT_THAT(nn::fold_batch_norm(model), ElementsAre("0 + 1"));
  EXPECT_LT(apart(model(x), before), 1e-12);
}

TEST(FoldBatchNorm, ComputesAgainAfterTrainingWithinCapturedInference) {
  const Tensor x = images();
  Block model;
  prepare(model, x);
  fold(model, x);
  const NoGradGuard no_grad;
  auto predict = graph::capture([&](Tensor in) { return model(in); });
  for (int i = 0; i < 3; ++i) {
    predict(x);
  }
  model.train();
  model(x * 3 + 5);
  model.eval();
  EXPECT_EQ(apart(predict(x), model(x)), 0);
}

TEST(FoldBatchNorm, LeavesNormsOfAnotherDimensionThanTheLayers) {
  manual_seed(2);
  nn::Sequential images(nn::Linear(6, 4), nn::BatchNorm2d(4));
  images.eval();
  EXPECT_THAT(nn::fold_batch_norm(images), IsEmpty());
  nn::Sequential sequences(nn::Linear(8, 8), nn::BatchNorm1d(8));
  sequences.eval();
  const Tensor x = randn({4, 8, 8});
  const NoGradGuard no_grad;
  const Tensor before = sequences(x).clone();
  EXPECT_THAT(message_of<ConfigError>([&] { fold(sequences, x); }), HasSubstr("for inputs of 2 dimensions"));
  EXPECT_EQ(apart(sequences(x), before), 0);
  nn::fold_batch_norm(sequences);
  EXPECT_THAT(message_of<ConfigError>([&] { sequences(x); }), HasSubstr("for inputs of 2 dimensions"));
}

TEST(FoldBatchNorm, GivesTheTensorsBackWhereNamesMislead) {
  struct Misleading : nn::Module<Misleading> {
    nn::Conv2d conv1 = child("conv1", nn::Conv2d(3, 4, 3));
    nn::BatchNorm2d bn1 = child("bn1", nn::BatchNorm2d(4));
    Tensor forward(const Tensor& x) const { return bn1(relu(conv1(x))); }
  } model;
  const Tensor x = images();
  prepare(model, x);
  const Tensor before = model(x).detach();
  EXPECT_THAT(message_of<ConfigError>([&] { nn::fold_batch_norm(model); }),
              HasSubstr("conv1 + bn1 are a pair by their names, which may mislead"));
  EXPECT_THAT(message_of<ValueError>([&] { fold(model, x); }), HasSubstr("another input than the layer before it"));
  EXPECT_EQ(apart(model(x), before), 0);
}

TEST(FoldBatchNorm, RefusesTrainingModeAndChangesNothing) {
  nn::Sequential model(nn::Conv2d(3, 4, 3), nn::BatchNorm2d(4), nn::Conv2d(4, 4, 3), nn::BatchNorm2d(4));
  prepare(model, images());
  model.get<nn::BatchNorm2d>(3).train();
  const Tensor before = model.get<nn::Conv2d>(0).weight.detach().clone();
  const std::string text = message_of<ConfigError>([&] { nn::fold_batch_norm(model); });
  EXPECT_THAT(text, HasSubstr("2 + 3 is in training mode"));
  EXPECT_THAT(text, HasSubstr("model.eval()"));
  EXPECT_EQ(apart(model.get<nn::Conv2d>(0).weight, before), 0);
}

}  // namespace
}  // namespace tandem::test

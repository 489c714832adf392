#include <cstdint>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "support/message.h"

namespace tandem::parallel {
namespace {

using test::cpus;
using test::difference;
using test::message_of;
using test::Mlp;
using test::seeded;

Tensor mean_loss(const Tensor& out, const Tensor& y) { return nn::cross_entropy(out, y); }

TEST(LossInReplicas, EqualsTheLossOnTheWholeBatch) {
  for (const std::int64_t rows : {1, 2, 5, 7, 8, 9}) {
    for (const int devices : {1, 2, 4}) {
      manual_seed(4);
      const Tensor x = randn({rows, 6}, {.dtype = DType::f64});
      const Tensor y = randint(0, 3, {rows});
      Mlp alone = seeded<Mlp>();
      const Tensor expected = mean_loss(alone(x), y);
      expected.backward();
      Mlp model = seeded<Mlp>();
      DataParallel dp(model, cpus(devices));
      const Tensor loss = dp.loss(mean_loss, x, y);
      EXPECT_NEAR(loss.item(), expected.item(), 1e-12);
      loss.backward();
      for (std::size_t i = 0; i < model.parameters().size(); ++i) {
        EXPECT_LE(difference(model.parameters()[i].grad(), alone.parameters()[i].grad()), 1e-12);
      }
    }
  }
}

TEST(LossInReplicas, SumsAreAddedUp) {
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, cpus(2));
  const Tensor x = ones({5, 6}, {.dtype = DType::f64});
  const auto sum = [](const Tensor& out, const Tensor&) { return out.sum(); };
  EXPECT_NEAR(dp.loss(sum, x, zeros({5}), Reduction::sum).item(), model(x).sum().item(), 1e-12);
}

struct Two : nn::Module<Two> {
  nn::Linear fc = child("fc", nn::Linear(6, 3));
  Tensor forward(const Tensor& a, const Tensor& b) const { return fc(a + b); }
};

TEST(LossInReplicas, TakesSeveralInputs) {
  Two model = seeded<Two>();
  DataParallel dp(model, cpus(2));
  const Tensor x = ones({4, 6}, {.dtype = DType::f64});
  const Tensor y = zeros({4}, {.dtype = DType::i64});
  EXPECT_NEAR(dp.loss(mean_loss, std::tuple(x, x), y).item(), mean_loss(model(x, x), y).item(), 1e-12);
}

struct Generates : nn::Module<Generates> {
  nn::Linear fc = child("fc", nn::Linear(1, 1));
  Tensor forward(double at) const { return fc(full({1}, at)); }
};

TEST(LossInReplicas, TakesRowsFromTargetsAlone) {
  Generates model;
  DataParallel dp(model, cpus(2));
  const auto distance = [](const Tensor& out, const Tensor& y) { return (y - out).mean(); };
  const Tensor y = arange(5).to(DType::f32);
  EXPECT_NEAR(dp.loss(distance, 0.5, y).item(), distance(model(0.5), y).item(), 1e-6);
}

TEST(LossInReplicas, WithoutRowsTheyWeighTheSame) {
  Generates model;
  DataParallel dp(model, cpus(2));
  const auto distance = [](const Tensor& out, double y) { return (out - y).mean(); };
  EXPECT_NEAR(dp.loss(distance, 0.5, 0.25).item(), distance(model(0.5), 0.25).item(), 1e-6);
}

TEST(LossInReplicas, IsAMeanOrASum) {
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, cpus(2));
  const Tensor x = ones({4, 6}, {.dtype = DType::f64});
  EXPECT_EQ(message_of<ConfigError>([&] { dp.loss(mean_loss, x, randint(0, 3, {4}), Reduction::none); }),
            "DataParallel::loss: the losses of the parts are joined by their mean or their sum; for one of each row "
            "call the loss on the gathered outputs");
}

TEST(LossInReplicas, MustBeAScalar) {
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, cpus(2));
  const auto each = [](const Tensor& out, const Tensor&) { return out; };
  EXPECT_EQ(message_of<ShapeError>([&] { dp.loss(each, ones({4, 6}, {.dtype = DType::f64}), zeros({4})); }),
            "DataParallel::loss: expected a scalar, got [2, 3] from replica 0");
}

}  // namespace
}  // namespace tandem::parallel

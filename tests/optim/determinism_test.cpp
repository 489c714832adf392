#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/nn/container.h>
#include <tandem/nn/functional.h>
#include <tandem/nn/stateless.h>
#include <tandem/optim/adagrad.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip.h>
#include <tandem/optim/rmsprop.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>

#include "kernels/recorder.h"
#include "support/thread_count.h"

// Tests that equal seeds give equal bits for any number of threads.

namespace tandem {
namespace {

using Values = std::vector<double>;
using Make = std::function<std::unique_ptr<optim::Optimizer>(const std::vector<Tensor>&)>;

// Trains a net that is large enough for products, sums and updates to be cut into several chunks.
std::vector<Values> train(int threads, const Make& make) {
  const test::ThreadCount count(threads);
  manual_seed(9);
  const nn::Sequential model(nn::Linear(520, 257), nn::ReLU(), nn::Dropout(0.25), nn::Linear(257, 10));
  const auto optimizer = make(model.parameters());
  const Tensor x = randn({600, 520});
  const Tensor y = randint(0, 10, {600});
  std::vector<Values> all;
  for (int step = 0; step < 4; ++step) {
    optimizer->zero_grad();
    const Tensor loss = nn::cross_entropy(model(x), y);
    loss.backward();
    all.push_back({loss.item(), optim::clip_grad_norm_(model.parameters(), 0.5).item()});
    optimizer->step();
  }
  for (const Tensor& p : model.parameters()) {
    all.push_back(p.to_vector<double>());
  }
  return all;
}

void expect_same_bits(const Make& make) {
  const auto one = train(1, make);
  EXPECT_EQ(train(1, make), one) << "run again";
  EXPECT_EQ(train(2, make), one) << "2 threads";
  EXPECT_EQ(train(3, make), one) << "3 threads";
}

TEST(Determinism, Sgd) {
  expect_same_bits([](const auto& p) {
    return std::make_unique<optim::SGD>(p, optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
  });
}

TEST(Determinism, Adam) {
  expect_same_bits([](const auto& p) { return std::make_unique<optim::Adam>(p); });
}

TEST(Determinism, AdamW) {
  expect_same_bits([](const auto& p) { return std::make_unique<optim::AdamW>(p); });
}

TEST(Determinism, RmsProp) {
  expect_same_bits([](const auto& p) {
    return std::make_unique<optim::RMSprop>(p, optim::RMSpropOptions{.momentum = 0.9, .centered = true});
  });
}

TEST(Determinism, AdagradInGroups) {
  expect_same_bits([](const auto& p) {
    const std::vector<optim::ParamGroup> groups{{.params = {p[0], p[3]}}, {.params = {p[1], p[2]}, .lr = 0.1}};
    return std::make_unique<optim::Adagrad>(groups);
  });
}

// Large parameters are updated alone, so that each thread updates the part that it multiplies by. Small ones are
// updated together.
TEST(LargeParameters, AreUpdatedAlone) {
  const nn::Sequential model(nn::Linear(520, 257), nn::ReLU(), nn::Linear(257, 30), nn::ReLU(), nn::Linear(30, 10));
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  model(randn({8, 520})).sum().backward();
  const std::vector<std::string> names = test::launches_of([&] { sgd.step(); });
  EXPECT_EQ(std::count(names.begin(), names.end(), "sgd"), 2);
}

}  // namespace
}  // namespace tandem

#include <tandem/nn/embedding.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>

#include "models.h"
#include "support/memory.h"
#include "support/message.h"

// Tests of the table of vectors. Comparisons of values and gradients with PyTorch's are in tests/golden, family norm.

namespace tandem {
namespace {

using test::memory_of;
using test::message_of;
using test::names_of;
using ::testing::ElementsAre;

using Values = std::vector<double>;

struct Words : nn::Module<Words> {
  nn::Embedding table = child("table", nn::Embedding(5, 2));
  Tensor forward(const Tensor& x) const { return table(x); }
};

TEST(Embedding, LooksRowsUp) {
  const nn::Embedding layer = nn::Embedding::from_pretrained(arange(6.0F).reshape({3, 2}));
  EXPECT_EQ(layer(tensor({2, 0})).to_vector<double>(), (Values{4, 5, 0, 1}));
  EXPECT_EQ(layer(tensor({2, 0, 1, 1}).reshape({2, 2})).shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(layer(tensor(1)).to_vector<double>(), (Values{2, 3}));
  EXPECT_EQ(layer(tensor({1}, {.dtype = DType::i32})).to_vector<double>(), (Values{2, 3}));
  EXPECT_EQ(layer(zeros({0}, {.dtype = DType::i64})).shape(), (Shape{0, 2}));
}

TEST(Embedding, StartsStandardNormal) {
  manual_seed(2);
  const nn::Embedding layer(500, 40);
  EXPECT_THAT(names_of(layer.state_dict()), ElementsAre("weight"));
  EXPECT_NEAR(layer.weight.mean().item(), 0, 0.05);
  EXPECT_NEAR(layer.weight.std().item(), 1, 0.05);
  EXPECT_TRUE(layer.weight.requires_grad());
  const nn::Embedding there(3, 2, {.device = "cpu:1", .dtype = DType::f64});
  EXPECT_EQ(there.weight.device(), Device("cpu:1"));
  EXPECT_EQ(there.weight.dtype(), DType::f64);
}

TEST(Embedding, ThePaddingRowIsZeroAndStaysSo) {
  for (const std::int64_t padding : {1, -3}) {
    const nn::Embedding layer(4, 2, {.padding_idx = padding});
    EXPECT_EQ(layer.weight[1].to_vector<double>(), (Values{0, 0}));
    EXPECT_NE(layer.weight[0].to_vector<double>(), (Values{0, 0}));
    EXPECT_TRUE(layer.weight.is_leaf());
    optim::SGD sgd(layer.parameters(), {.lr = 1});
    const Values before = layer.weight[0].to_vector<double>();
    layer(tensor({1, 0, 1})).sum().backward();
    sgd.step();
    EXPECT_EQ(layer.weight[1].to_vector<double>(), (Values{0, 0}));
    EXPECT_NE(layer.weight[0].to_vector<double>(), before);
  }
}

TEST(Embedding, PretrainedIsFrozenUnlessToldOtherwise) {
  const Tensor weight = rand({4, 2});
  const nn::Embedding frozen = nn::Embedding::from_pretrained(weight);
  EXPECT_FALSE(frozen.weight.requires_grad());
  EXPECT_FALSE(frozen(tensor({1})).requires_grad());
  EXPECT_EQ(memory_of(frozen.weight), memory_of(weight)) << "shared, not copied";
  const nn::Embedding trained = nn::Embedding::from_pretrained(rand({4, 2}), false, 0);
  trained(tensor({0, 1})).sum().backward();
  EXPECT_EQ(trained.weight.grad().to_vector<double>(), (Values{0, 0, 1, 1, 0, 0, 0, 0}));
  EXPECT_NE(trained.weight[0].to_vector<double>(), (Values{0, 0})) << "its padding row is what was given";
}

TEST(Embedding, MessagesNameTheLayer) {
  const Words words;
  EXPECT_EQ(message_of<ValueError>([&] { words(tensor({1, 2, 7})); }),
            "Embedding 'table': index 7 at position 2 is outside [0, 5)");
  EXPECT_EQ(message_of<DTypeError>([&] { words(tensor({1.0})); }),
            "Embedding 'table': indices must be i64 or i32, got f32; convert with .to(DType::i64)");
  EXPECT_EQ(message_of<ConfigError>([] { nn::Embedding(-1, 2); }),
            "Embedding: sizes must not be negative, got -1 and 2");
  EXPECT_EQ(message_of<ConfigError>([] { nn::Embedding(3, 2, {.padding_idx = 3}); }),
            "Embedding: padding_idx 3 is outside [-3, 3)");
  EXPECT_EQ(message_of<ShapeError>([] { nn::Embedding::from_pretrained(zeros({3})); }),
            "Embedding: the weight must be [num_embeddings, embedding_dim], got [3]");
}

}  // namespace
}  // namespace tandem

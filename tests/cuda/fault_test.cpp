#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/nn/embedding.h>
#include <tandem/nn/functional.h>
#include <tandem/nn/loss.h>
#include <tandem/nn/module.h>

#include "cuda/gpu_test.h"

// Tests of values that an op cannot use and that the GPU finds: the error is thrown once, where the program next waits.

namespace tandem {
namespace {

using test::all_are;
using test::filled;
using test::message_of;

constexpr const char* kWhere =
    " (found on the GPU cuda:0 while the program went on; results since then are not to be used)";

Tensor on_gpu(const Tensor& tensor) { return tensor.to("cuda:0"); }
Tensor ids(const std::vector<std::int64_t>& values) {
  return on_gpu(from_data(values, {static_cast<std::int64_t>(values.size())}));
}

// Expects `op` to return, the next wait to throw `message`, and everything to work afterwards.
void expect_fault(const std::function<Tensor()>& op, const std::string& message) {
  const std::vector<std::function<void(const Tensor&)>> waits{
      [](const Tensor& result) { result.sum().item(); },
      [](const Tensor& result) { result.to("cpu"); },
      [](const Tensor&) { cuda::synchronize(); },
      [](const Tensor&) { cuda::current_stream().synchronize(); },
      [](const Tensor&) { cuda::current_stream().record_event().synchronize(); },
  };
  for (const auto& wait : waits) {
    const Tensor result = op();
    EXPECT_EQ(message_of<ValueError>([&] { wait(result); }), message + kWhere);
    EXPECT_NO_THROW(cuda::synchronize());
    EXPECT_TRUE(all_are(filled(10, 1) + 1, 2));
  }
}

TEST(CudaFault, ClassIndex) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor logits = on_gpu(randn({4, 3}));
  expect_fault([&] { return nn::cross_entropy(logits, ids({0, 1, 3, 2})); },
               "cross_entropy: target 3 in row 2 is not a class index: expected 0 to 2, or -100 (ignore_index)");
  expect_fault([&] { return nn::cross_entropy(logits, ids({-1, 1, 0, 2})); },
               "cross_entropy: target -1 in row 0 is not a class index: expected 0 to 2, or -100 (ignore_index)");
  const Tensor logs = logits.log_softmax(1);
  expect_fault([&] { return nn::nll_loss(logs, ids({0, 1, 1, 8})); },
               "nll_loss: target 8 in row 3 is not a class index: expected 0 to 2, or -100 (ignore_index)");
}

TEST(CudaFault, Index) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor table = on_gpu(randn({5, 3}));
  expect_fault([&] { return nn::embedding(ids({0, 4, 5}), table); },
               "embedding: index 5 at position 2 is outside [0, 5)");
  expect_fault([&] { return table.index_select(0, ids({-1, 4})); },
               "index_select: index -1 at position 0 is outside [0, 5)");
  expect_fault([&] { return table.gather(0, ids({0, 7, 1}).reshape({1, 3})); },
               "gather: index 7 at position 1 is outside [0, 5)");
  expect_fault([&] { return table.scatter_add(0, ids({0, 1, -2}).reshape({1, 3}), on_gpu(ones({1, 3}))); },
               "scatter_add: index -2 at position 2 is outside [0, 5)");
}

TEST(CudaFault, Probability) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor target = filled(4, 1);
  expect_fault(
      [&] { return nn::binary_cross_entropy(on_gpu(tensor({0.5, 0.1, 1.5, 1.0})), target); },
      "binary_cross_entropy: element 2 of the input is 1.5, expected a probability between 0 and 1; for logits "
      "use binary_cross_entropy_with_logits");
}

// Messages equal the CPU's, except for the note about the GPU.
TEST(CudaFault, SaysWhatTheCpuSays) {
  TANDEM_NEEDS_GPUS(1);
  const auto same = [](const std::function<Tensor(Device)>& op) {
    const std::string here = message_of<ValueError>([&] { op("cpu"); });
    EXPECT_EQ(message_of<ValueError>([&] { op("cuda:0").to("cpu"); }), here + kWhere);
  };
  const Tensor x = randn({4, 3});
  const Tensor wrong = tensor<std::int64_t>({0, 1, 2, 9});
  same([&](Device d) { return nn::cross_entropy(x.to(d), wrong.to(d)); });
  same([&](Device d) { return nn::nll_loss(x.to(d), wrong.to(d)); });
  const Tensor image = randn({2, 3, 2, 2});
  const Tensor labels = tensor<std::int64_t>({0, 1, 2, 0, 1, 2, 3, 0}).reshape({2, 2, 2});
  same([&](Device d) { return nn::cross_entropy(image.to(d), labels.to(d)); });
  same([&](Device d) { return nn::cross_entropy(image.to(d), labels.to(d), {.label_smoothing = 0.1}); });
  same([&](Device d) { return nn::nll_loss(image.to(d), labels.to(d)); });
  same([&](Device d) { return nn::cross_entropy(x[0].to(d), tensor<std::int64_t>({7}).reshape({}).to(d)); });
  same([&](Device d) { return nn::embedding(wrong.reshape({2, 2}).to(d), x.to(d)); });
  same([&](Device d) { return nn::embedding(wrong.to(d), x.to(d)); });
  same([&](Device d) { return x.to(d).index_select(1, wrong.to(d)); });
  same([&](Device d) { return x.to(d).gather(1, wrong.to(d).reshape({4, 1})); });
  same([&](Device d) { return x.to(d).scatter_add(1, wrong.to(d).reshape({4, 1}), x.to(d)); });
  same([&](Device d) { return nn::binary_cross_entropy(tensor({0.5, -0.1}).to(d), tensor({0.5, 0.5}).to(d)); });
}

TEST(CudaFault, NamesTheModule) {
  TANDEM_NEEDS_GPUS(1);
  struct Model : nn::Module<Model> {
    nn::Embedding words = child("words", nn::Embedding(5, 2));
    nn::BCELoss loss = child("loss", nn::BCELoss());
    Tensor forward(const Tensor& x) const { return words(x); }
  };
  Model model;
  model.to("cuda:0");
  expect_fault([&] { return model(ids({1, 7})); }, "Embedding 'words': index 7 at position 1 is outside [0, 5)");
  expect_fault([&] { return model.loss(filled(4, -1), filled(4, 1)); },
               "BCELoss 'loss': binary_cross_entropy: element 0 of the input is -1, expected a probability between 0 "
               "and 1; for logits use binary_cross_entropy_with_logits");
}

TEST(CudaFault, TheFirstOfManyIsKept) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor table = on_gpu(randn({5, 3}));
  nn::embedding(ids({9}), table);
  nn::embedding(ids({7}), table);
  nn::cross_entropy(table, ids({0, 0, 0, 0, 4}));
  EXPECT_EQ(message_of<ValueError>([] { cuda::synchronize(); }),
            std::string("embedding: index 9 at position 0 is outside [0, 5)") + kWhere);
  EXPECT_NO_THROW(cuda::synchronize());
  // The next fault is found, too.
  nn::embedding(ids({6}), table);
  EXPECT_EQ(message_of<ValueError>([] { cuda::synchronize(); }),
            std::string("embedding: index 6 at position 0 is outside [0, 5)") + kWhere);
}

TEST(CudaFault, InABackwardPass) {
  TANDEM_NEEDS_GPUS(1);
  Tensor table = on_gpu(randn({5, 3})).requires_grad_();
  nn::embedding(ids({0, 5}), table).sum().backward();
  EXPECT_THROW(cuda::synchronize(), ValueError);
  table.zero_grad();
  nn::embedding(ids({0, 4}), table).sum().backward();
  EXPECT_EQ(table.grad().sum().item(), 6);
}

TEST(CudaFault, IsOfItsGpu) {
  TANDEM_NEEDS_GPUS(2);
  const Tensor table = randn({5, 3}).to("cuda:1");
  nn::embedding(ids({5}).to("cuda:1"), table);
  EXPECT_NO_THROW(cuda::synchronize("cuda:0"));
  EXPECT_NE(message_of<ValueError>([] { cuda::synchronize("cuda:1"); }).find("cuda:1"), std::string::npos);
}

TEST(CudaFault, IsThrownToOneThread) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor table = on_gpu(randn({5, 3}));
  for (int round = 0; round < 10; ++round) {
    nn::embedding(ids({5}), table);
    std::vector<int> thrown(4);
    std::vector<std::thread> threads;
    for (int& mine : thrown) {
      threads.emplace_back([&mine] {
        try {
          cuda::synchronize();
        } catch (const ValueError&) {
          mine = 1;
        }
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    EXPECT_EQ(thrown[0] + thrown[1] + thrown[2] + thrown[3], 1);
  }
}

}  // namespace
}  // namespace tandem

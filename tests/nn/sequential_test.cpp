#include <tandem/nn/container.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/thread_state.h>
#include <tandem/kernels/launch.h>
#include <tandem/nn/stateless.h>

#include "models.h"
#include "support/message.h"

namespace tandem {
namespace {

using test::message_of;
using ::testing::ElementsAre;

TEST(Sequential, RunsItsLayersInOrder) {
  struct Add : nn::Module<Add> {
    explicit Add(double v) : value(v) {}
    Tensor forward(const Tensor& x) const { return x + value; }
    double value;
  };
  struct Double : nn::Module<Double> {
    Tensor forward(const Tensor& x) const { return x * 2; }
  };
  const nn::Sequential net(Add(1), Double(), Add(0.5));
  EXPECT_EQ(net(ones({1})).item(), 4.5);
  EXPECT_EQ(net.size(), 3u);
}

TEST(Sequential, WithoutLayersPassesItsInput) {
  const Tensor x = ones({2});
  EXPECT_EQ(nn::Sequential()(x).unresolved(), x.unresolved());
  EXPECT_EQ(nn::Sequential(nn::Sequential())(x).unresolved(), x.unresolved());
}

TEST(Sequential, NamesLayersByNumber) {
  const nn::Sequential net(nn::Linear(2, 3), nn::ReLU(), nn::Sequential(nn::Linear(3, 1, {.bias = false})));
  EXPECT_THAT(test::names_of(net.named_parameters()), ElementsAre("0.weight", "0.bias", "2.0.weight"));
}

TEST(Sequential, ReachesItsLayersWithTrainAndEval) {
  nn::Sequential net(nn::Dropout(0.999));
  const Tensor x = ones({1000});
  EXPECT_LT(net(x).sum().item() / 1000, 100);
  EXPECT_NE(net(x).to_vector<double>(), x.to_vector<double>());
  net.eval();
  EXPECT_EQ(net(x).to_vector<double>(), x.to_vector<double>());
}

// ---- fusion ----

// Counts the launches of a kernel on this thread.
class Launches : public kernels::LaunchObserver {
 public:
  Launches() : saved_(core::thread_state().observer) { core::thread_state().observer = this; }
  ~Launches() { core::thread_state().observer = saved_; }
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;
  void on_launch(kernels::Context&, const kernels::LaunchRecord& record) override { names.emplace_back(record.name); }
  std::vector<std::string> names;

 private:
  kernels::LaunchObserver* saved_;
};

TEST(SequentialFusion, ALinearAndAReluAreOneLaunch) {
  const nn::Sequential net(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 3));
  const Tensor x = ones({2, 4});
  Launches launches;
  net(x);
  EXPECT_THAT(launches.names, ElementsAre("matmul", "matmul"));
}

TEST(SequentialFusion, GivesTheSameBits) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const std::int64_t rows : {1, 7, 64}) {
      manual_seed(3);
      nn::Sequential net(nn::Linear(9, 33, {.dtype = dtype}), nn::ReLU(), nn::ReLU(),
                         nn::Linear(33, 5, {.bias = false, .dtype = dtype}), nn::ReLU());
      const Tensor x = randn({rows, 9}, {.dtype = dtype});
      const Tensor left = x.clone().requires_grad_();
      const Tensor right = x.clone().requires_grad_();
      const Tensor fused = net(left);
      const std::vector<Tensor> p = net.parameters();
      const Tensor apart = relu(linear(relu(relu(linear(right, p[0], p[1]))), p[2]));
      EXPECT_EQ(fused.to_vector<double>(), apart.to_vector<double>());
      (fused * fused).sum().backward();
      const auto gradients = test::gradients_of(net);
      net.zero_grad();
      (apart * apart).sum().backward();
      EXPECT_EQ(test::gradients_of(net), gradients);
      EXPECT_EQ(left.grad().to_vector<double>(), right.grad().to_vector<double>());
    }
  }
}

TEST(SequentialFusion, StillNamesTheLayer) {
  const nn::Sequential net(nn::ReLU(), nn::Linear(4, 8), nn::ReLU());
  EXPECT_EQ(message_of<ShapeError>([&] { net(ones({2, 5})); }),
            "Linear '1': input [2, 5] has 5 features, layer expects 4 (weight [8, 4])");
}

TEST(SequentialFusion, DoesNotReachOverNestedModules) {
  const nn::Sequential net(nn::Sequential(nn::Linear(4, 8)), nn::ReLU());
  const Tensor x = -ones({2, 4});
  const Tensor out = net(x);
  EXPECT_EQ(out.to_vector<double>(), relu(linear(x, net.parameters()[0], net.parameters()[1])).to_vector<double>());
}

TEST(SequentialFusion, IsNotForLayersThatDeriveFromLinear) {
  struct Shifted : nn::Linear {
    Shifted() : nn::Linear(2, 2) {}
    Tensor operator()(const Tensor& x) const { return nn::Linear::operator()(x) - 100; }
  };
  const nn::Sequential net{Shifted(), nn::ReLU()};
  EXPECT_EQ(net(ones({1, 2})).to_vector<double>(), (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace tandem

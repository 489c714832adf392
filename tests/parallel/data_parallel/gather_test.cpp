#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/gradcheck.h>
#include <tandem/core/error.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/data_parallel/scatter_gather.h>
#include <tandem/tandem.h>

#include "autograd/leaves.h"
#include "parallel/models.h"
#include "support/message.h"

namespace tandem::parallel {
namespace {

using test::cpus;
using test::message_of;

TEST(Gather, UndoesScatter) {
  const Tensor x = test::values({7, 3});
  for (const int devices : {1, 2, 3, 4}) {
    for (const int dim : {0, 1, -1}) {
      const Tensor back = gather(scatter(x, cpus(devices), dim), "cpu:1", dim);
      EXPECT_EQ(back.device(), Device("cpu:1"));
      EXPECT_EQ(back.shape(), x.shape());
      EXPECT_EQ(back.to_vector<double>(), x.to_vector<double>());
    }
  }
}

TEST(Gather, JoinsPartsOfDifferentSizes) {
  const Tensor joined = gather({ones({2, 1}), zeros({0, 1}).to("cpu:1"), full({1, 1}, 3.0).to("cpu:2")}, "cpu:0");
  EXPECT_EQ(joined.to_vector<float>(), (std::vector<float>{1, 1, 3}));
}

TEST(Gather, IsDifferentiable) {
  const auto joined = [](const std::vector<Tensor>& in) {
    const Tensor all = gather({in[0], in[1].to("cpu:1"), in[2].to("cpu:2")}, "cpu:0");
    return (all * all).sum();
  };
  autograd::gradcheck(joined, {test::leaf({2, 3}), test::leaf({1, 3}, -1, 1, 8), test::leaf({3, 3}, -1, 1, 9)});
}

TEST(Gather, OnADeviceThatHasNoPart) {
  const Tensor a = test::leaf({2});
  const Tensor all = gather({a, (a * 2).to("cpu:1")}, "cpu:3");
  all.sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{3, 3}));
}

TEST(Gather, MakesAVectorOfScalarsAndSaysSoOnce) {
  std::vector<std::string> said;
  set_warning_handler([&](const std::string& text) { said.push_back(text); });
  for (int i = 0; i < 2; ++i) {
    const Tensor joined = gather({tensor(1.0), tensor(2.0).to("cpu:1")}, "cpu:0");
    EXPECT_EQ(joined.shape(), Shape{2});
    EXPECT_EQ(joined.to_vector<double>(), (std::vector<double>{1, 2}));
  }
  set_warning_handler({});
  EXPECT_LE(said.size(), 1U);  // another test may have warned already
}

TEST(Gather, NothingStaysNothing) {
  EXPECT_FALSE(gather({Tensor(), Tensor()}, "cpu:0").defined());
  EXPECT_EQ(message_of<ConfigError>([] { gather({zeros({1}), Tensor()}, "cpu:0"); }),
            "gather: 1 of 2 replicas gave an undefined tensor in the place where the others have one");
}

TEST(GatherErrors, NameTheReplica) {
  EXPECT_EQ(message_of<ConfigError>([] { gather(std::vector<Tensor>(), "cpu:0"); }),
            "gather: there is nothing to join");
  EXPECT_EQ(message_of<ShapeError>([] { gather({zeros({2, 3}), zeros({2, 3}), zeros({2, 4})}, "cpu:0"); }),
            "gather: replica 0 gives [2, 3], replica 2 [2, 4]: outside dimension 0 they must be equal");
  EXPECT_EQ(message_of<ShapeError>([] { gather({zeros({2}), tensor(1.0F)}, "cpu:0"); }),
            "gather: replica 0 gives [2], replica 1 []: outside dimension 0 they must be equal");
  EXPECT_EQ(message_of<DTypeError>([] { gather({zeros({2}), zeros({2}).to(DType::f64)}, "cpu:0"); }),
            "gather: replica 0 gives f32, replica 1 f64");
}

}  // namespace
}  // namespace tandem::parallel

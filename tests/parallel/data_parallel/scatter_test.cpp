#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/gradcheck.h>
#include <tandem/core/error.h>
#include <tandem/parallel/data_parallel/scatter_gather.h>
#include <tandem/tandem.h>

#include "autograd/leaves.h"
#include "parallel/models.h"
#include "support/message.h"

namespace tandem::parallel {
namespace {

using test::cpus;
using test::message_of;

std::vector<std::int64_t> rows_of(std::int64_t rows, int devices) {
  std::vector<std::int64_t> result;
  for (const Tensor& part : scatter(zeros({rows, 2}), cpus(devices))) {
    result.push_back(part.size(0));
  }
  return result;
}

using Rows = std::vector<std::int64_t>;

TEST(Scatter, CutsAsPyTorchDoes) {
  EXPECT_EQ(rows_of(8, 2), (Rows{4, 4}));
  EXPECT_EQ(rows_of(9, 4), (Rows{3, 3, 3}));
  EXPECT_EQ(rows_of(10, 4), (Rows{3, 3, 3, 1}));
  EXPECT_EQ(rows_of(5, 4), (Rows{2, 2, 1}));
  EXPECT_EQ(rows_of(3, 4), (Rows{1, 1, 1}));
  EXPECT_EQ(rows_of(1, 4), (Rows{1}));
  EXPECT_EQ(rows_of(7, 1), (Rows{7}));
}

TEST(Scatter, NoRowsAreOneEmptyPart) { EXPECT_EQ(rows_of(0, 3), (Rows{0})); }

TEST(Scatter, PutsPartsOnTheirDevicesInOrder) {
  const Tensor x = arange(10).reshape({5, 2});
  const std::vector<Tensor> parts = scatter(x, {"cpu:2", "cpu:0"});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].device(), Device("cpu:2"));
  EXPECT_EQ(parts[1].device(), Device("cpu:0"));
  EXPECT_EQ(parts[0].to_vector<std::int64_t>(), (Rows{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(parts[1].to_vector<std::int64_t>(), (Rows{6, 7, 8, 9}));
}

TEST(Scatter, CopiesNothingBetweenLogicalDevices) {
  const Tensor x = zeros({4, 2});
  const std::vector<Tensor> parts = scatter(x, cpus(2));
  EXPECT_EQ(parts[0].data<float>(), x.data<float>());
  EXPECT_EQ(parts[1].data<float>(), x.data<float>() + 4);
}

TEST(Scatter, AlongAnotherDimension) {
  const Tensor x = arange(12).reshape({2, 6});
  for (const int dim : {1, -1}) {
    const std::vector<Tensor> parts = scatter(x, cpus(3), dim);
    ASSERT_EQ(parts.size(), 3U);
    EXPECT_EQ(parts[1].shape(), (Shape{2, 2}));
    EXPECT_EQ(parts[1].to_vector<std::int64_t>(), (Rows{2, 3, 8, 9}));
  }
}

TEST(Scatter, TakesWhatIsNotContiguous) {
  const Tensor x = arange(12).reshape({3, 4}).transpose(0, 1);
  const std::vector<Tensor> parts = scatter(x, cpus(2));
  EXPECT_EQ(parts[0].to_vector<std::int64_t>(), (Rows{0, 4, 8, 1, 5, 9}));
  EXPECT_EQ(parts[1].to_vector<std::int64_t>(), (Rows{2, 6, 10, 3, 7, 11}));
}

TEST(Scatter, GivesScalarsToAll) {
  const std::vector<Tensor> parts = scatter(tensor(3.0), cpus(3));
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[2].device(), Device("cpu:2"));
  EXPECT_EQ(parts[2].item(), 3.0);
}

TEST(Scatter, IsDifferentiable) {
  for (const std::int64_t rows : {1, 2, 5, 6}) {
    const auto joined = [](const std::vector<Tensor>& in) {
      const std::vector<Tensor> parts = scatter(in[0], cpus(3));
      Tensor sum;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const Tensor part = (parts[i] * parts[i] * static_cast<double>(i + 1)).sum().to("cpu:0");
        sum = sum.defined() ? sum + part : part;
      }
      return sum;
    };
    autograd::gradcheck(joined, {test::leaf({rows, 2})});
  }
}

TEST(Scatter, PartsThatNothingDependsOnHaveNoGradient) {
  const Tensor x = test::leaf({4, 1});
  const std::vector<Tensor> parts = scatter(x, cpus(2));
  (parts[1] * 2).sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 0, 2, 2}));
  const std::vector<Tensor> again = scatter(x, cpus(2));
  (again[0] * 3).sum().backward();  // adds to the existing gradient
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 3, 2, 2}));
}

TEST(Scatter, APartCannotBeWrittenWhereItIsOnlySeen) {
  std::vector<Tensor> parts = scatter(zeros({4, 2}), cpus(2));
  EXPECT_EQ(
      message_of<AutogradError>([&] { parts[1].fill_(1); }),
      "fill_: [2, 2] on cpu:1 is memory of cpu:0 that a replica only reads; change a copy (.clone()), or keep what "
      "changes in a buffer of the module");
  EXPECT_THROW(parts[1].mutable_data<float>(), AutogradError);
  EXPECT_THROW(parts[1].mutable_span<float>(), AutogradError);
  parts[0].fill_(1);
}

TEST(Scatter, KnowsWhenWhatItCutWasChanged) {
  const Tensor w = test::leaf({2, 2});
  Tensor x = test::values({4, 2});
  const std::vector<Tensor> parts = scatter(x, cpus(2));
  const Tensor y = matmul(parts[1], w.to("cpu:1"));
  x.fill_(0);
  EXPECT_THROW(y.sum().backward(), AutogradError);
}

TEST(ScatterErrors, NameWhatIsWrong) {
  EXPECT_EQ(message_of<ConfigError>([] { scatter(zeros({2}), {}); }), "scatter: no devices are given");
  EXPECT_THROW(scatter(zeros({2}), {"cpu:0", "cpu:99"}), DeviceError);
  EXPECT_THROW(scatter(zeros({2}), cpus(2), 1), Error);
  EXPECT_EQ(message_of<ShapeError>([] { scatter(std::tuple<Tensor, Tensor>(zeros({9, 2}), zeros({4})), cpus(2)); }),
            "scatter: inputs [9, 2] and [4] differ in dimension 0, along which they are cut into parts that belong "
            "together; what all replicas need as a whole should be a buffer of the module");
}

}  // namespace
}  // namespace tandem::parallel

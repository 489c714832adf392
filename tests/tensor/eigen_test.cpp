#include <gtest/gtest.h>

#include <tandem/tensor/eigen.h>

#include "support/gpu.h"
#include "support/message.h"

// Eigen matrices and tensors on shared memory.

namespace tandem {
namespace {

using test::message_of;

TEST(EigenBridge, TensorIsReadAsAMatrixWithoutACopy) {
  TANDEM_SKIP_ON_GPU("Eigen reads memory of the host");
  const Tensor x = arange(6).to(DType::f32).reshape({2, 3});
  const auto m = eigen_matrix<float>(x);
  EXPECT_EQ(m.data(), x.data<float>());
  EXPECT_EQ(m.rows(), 2);
  EXPECT_EQ(m.cols(), 3);
  EXPECT_EQ(m(1, 2), 5);
  EXPECT_EQ(m.colwise().sum()(1), 5);
}

TEST(EigenBridge, StridesAreFollowed) {
  TANDEM_SKIP_ON_GPU("Eigen reads memory of the host");
  const Tensor x = arange(24).to(DType::f64).reshape({4, 6});
  const auto expect_equal = [](const Tensor& t) {
    const auto m = eigen_matrix<double>(t);
    for (int i = 0; i < t.size(0); ++i) {
      for (int j = 0; j < t.size(1); ++j) {
        EXPECT_EQ(m(i, j), t[i][j].item());
      }
    }
  };
  expect_equal(x);
  expect_equal(x.t());
  expect_equal(x.slice(0, 1, 4, 2).slice(1, 0, 6, 3));
  expect_equal(x.narrow(0, 0, 0));
  expect_equal(x[0].expand({3, 6}));
  const auto v = eigen_vector<double>(x.t()[2]);
  EXPECT_EQ(v.size(), 4);
  EXPECT_EQ(v(3), 20);
}

TEST(EigenBridge, WritesAreNoticed) {
  TANDEM_SKIP_ON_GPU("Eigen reads memory of the host");
  Tensor x = zeros({2, 2});
  const std::uint32_t version = x.version();
  mutable_eigen_matrix<float>(x).setIdentity();
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 0, 0, 1}));
  EXPECT_GT(x.version(), version);
  Tensor row = x[1];
  mutable_eigen_vector<float>(row).setConstant(4);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 0, 4, 4}));
}

TEST(EigenBridge, MatrixBecomesATensorOnItsMemory) {
  Eigen::MatrixXf columns(2, 3);
  columns << 1, 2, 3, 4, 5, 6;
  Tensor x = from_blob(columns);
  EXPECT_EQ(x.shape(), (Shape{2, 3}));
  EXPECT_EQ(x.strides(), (Shape{1, 2}));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  x[0].fill_(9);
  EXPECT_EQ(columns(0, 2), 9);
  Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> rows(2, 3);
  EXPECT_TRUE(from_blob(rows).is_contiguous());
  Eigen::VectorXd v = Eigen::VectorXd::LinSpaced(4, 0, 3);
  EXPECT_EQ(from_blob(v).shape(), (Shape{4}));
  EXPECT_EQ(from_blob(v).data<double>(), v.data());
}

TEST(EigenBridge, ExpressionsAreCopied) {
  TANDEM_SKIP_ON_GPU("Eigen reads memory of the host");
  const Eigen::Matrix2d m = Eigen::Matrix2d::Identity();
  const Tensor x = from_eigen(m * 2 + m);
  EXPECT_EQ(x.dtype(), DType::f64);
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{3, 0, 0, 3}));
  EXPECT_EQ(from_eigen(m.col(0)).shape(), (Shape{2}));
  EXPECT_EQ(from_eigen(m, {.dtype = DType::f32}).dtype(), DType::f32);
  EXPECT_TRUE(from_eigen(m, {.requires_grad = true}).requires_grad());
}

TEST(EigenBridge, WrongDimensionsAndTypesAreNamed) {
  Tensor x = zeros({2, 3, 4});
  EXPECT_EQ(message_of<ShapeError>([&] { eigen_matrix<float>(x); }),
            "eigen_matrix: needs 2 dimension(s), the tensor is [2, 3, 4]; reshape it");
  EXPECT_THROW(mutable_eigen_vector<float>(x), ShapeError);
  EXPECT_EQ(message_of<DTypeError>([&] { eigen_vector<double>(zeros({2})); }),
            "data<f64>: the tensor holds f32; convert with .to(DType::f64)");
}

TEST(EigenBridge, AnExpandedTensorIsNotForWriting) {
  TANDEM_SKIP_ON_GPU("Eigen reads memory of the host");
  Tensor x = ones({2}).expand({3, 2});
  const std::uint32_t version = x.version();
  EXPECT_EQ(message_of<ShapeError>([&] { mutable_eigen_matrix<float>(x); }),
            "mutable_eigen_matrix: the tensor [3, 2] is expanded, several of its elements share memory; call .clone() "
            "first");
  Tensor v = ones({}).expand({4});
  EXPECT_EQ(message_of<ShapeError>([&] { mutable_eigen_vector<float>(v); }),
            "mutable_eigen_vector: the tensor [4] is expanded, several of its elements share memory; call .clone() "
            "first");
  EXPECT_EQ(x.version(), version);
  Tensor one = ones({1}).expand({1, 1});
  mutable_eigen_matrix<float>(one)(0, 0) = 3;
  EXPECT_EQ(one.item(), 3);
}

}  // namespace
}  // namespace tandem

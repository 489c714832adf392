#include <cstdint>
#include <list>
#include <vector>

#include <cuda_runtime.h>
#include <cudnn.h>
#include <gtest/gtest.h>

// Mistakes in the description of a convolution, each of which must be refused. Part of cuda_cudnn_test.

namespace emulated_gpu::cudnn {
namespace {

using Numbers = std::vector<std::int64_t>;

class Parts {
 public:
  ~Parts() {
    for (cudnnBackendDescriptor_t part : made_) {
      cudnnBackendDestroyDescriptor(part);
    }
  }
  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type) {
    EXPECT_EQ(cudnnBackendCreateDescriptor(type, &made_.emplace_back()), CUDNN_STATUS_SUCCESS);
    return made_.back();
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::vector<T> values) {
    note(cudnnBackendSetAttribute(made_.back(), name, type, static_cast<std::int64_t>(values.size()), values.data()));
  }
  void finish() { note(cudnnBackendFinalize(made_.back())); }

  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;  // the first that is not success

 private:
  void note(cudnnStatus_t next) { status = status == CUDNN_STATUS_SUCCESS ? next : status; }

  std::list<cudnnBackendDescriptor_t> made_;
};

struct Tensor {
  Numbers sizes, strides;
  std::int64_t number;
  std::int64_t alignment = 16;
  bool is_virtual = false;
  bool has_number = true;
};

/// A forward pass of 8 channels, whose parts a test changes. With `bias`, y is virtual and z is the result.
struct Problem {
  Tensor x{{1, 8, 5, 5}, {200, 25, 5, 1}, 1};
  Tensor w{{4, 8, 3, 3}, {72, 9, 3, 1}, 2};
  Tensor y{{1, 4, 5, 5}, {100, 25, 5, 1}, 0};
  Tensor b{{1, 4, 1, 1}, {4, 1, 1, 1}, 3};
  Tensor z{{1, 4, 5, 5}, {100, 25, 5, 1}, 4};
  bool bias = false;
  Numbers strides{1, 1}, dilations{1, 1}, before{1, 1}, behind{1, 1};
  float beta = 0;
  bool has_beta = true;

  static cudnnBackendDescriptor_t tensor(Parts& parts, const Tensor& tensor) {
    const auto made = parts.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    parts.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    parts.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, tensor.sizes);
    parts.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, tensor.strides);
    if (tensor.has_number) {
      parts.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, Numbers{tensor.number});
    }
    parts.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, Numbers{tensor.alignment});
    const bool is_virtual = tensor.is_virtual;
    EXPECT_EQ(cudnnBackendSetAttribute(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual),
              CUDNN_STATUS_SUCCESS);
    parts.finish();
    return made;
  }

  /// Makes the graph and searches for an engine. Returns the first status that is not success.
  cudnnStatus_t status() {
    cudnnHandle_t handle = nullptr;
    EXPECT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    Parts parts;
    y.is_virtual = y.is_virtual || bias;
    const auto in = tensor(parts, x), weight = tensor(parts, w), out = tensor(parts, y);
    const auto convolution = parts.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    parts.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, Numbers{2});
    parts.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    parts.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, std::vector{CUDNN_CROSS_CORRELATION});
    parts.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, strides);
    parts.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dilations);
    parts.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, before);
    parts.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, behind);
    parts.finish();
    std::vector operations{parts.make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)};
    parts.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              std::vector{convolution});
    parts.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{in});
    parts.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{weight});
    parts.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{out});
    parts.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, std::vector{1.0F});
    if (has_beta) {
      parts.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, std::vector{beta});
    }
    parts.finish();
    if (bias) {
      const auto term = tensor(parts, b), sum = tensor(parts, z);
      const auto add = parts.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
      parts.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector{CUDNN_POINTWISE_ADD});
      parts.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
      parts.finish();
      operations.push_back(parts.make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
      parts.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{add});
      parts.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{out});
      parts.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{term});
      parts.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{sum});
      parts.finish();
    }
    const auto graph = parts.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    parts.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle});
    parts.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations);
    parts.finish();
    parts.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    parts.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{graph});
    parts.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{CUDNN_HEUR_MODE_A});
    parts.finish();
    cudnnDestroy(handle);
    return parts.status;
  }
};

template <class Change>
void expect_refused(bool bias, Change change) {
  Problem problem;
  problem.bias = bias;
  ASSERT_EQ(problem.status(), CUDNN_STATUS_SUCCESS);
  change(problem);
  EXPECT_NE(problem.status(), CUDNN_STATUS_SUCCESS);
}

TEST(CudnnRefuses, TensorsOfAConvolution) {
  expect_refused(false, [](Problem& p) { p.x.has_number = false; });
  expect_refused(false, [](Problem& p) { p.w.number = p.x.number; });
  expect_refused(false, [](Problem& p) { p.x.alignment = 2; });
  expect_refused(false, [](Problem& p) { p.x.strides = {200, 1, 40, 8}; });  // channels last beside rows
  expect_refused(false, [](Problem& p) { p.w.strides = {72, 9, 3, 2}; });
  expect_refused(false, [](Problem& p) { p.y.strides = {100, 25, 5}; });
  expect_refused(false, [](Problem& p) { p.w = {{4, 3, 3, 3}, {27, 9, 3, 1}, 2}; });  // 8 channels in groups of 3
  expect_refused(false, [](Problem& p) { p.y = {{1, 4, 5, 4}, {80, 20, 4, 1}, 0}; });
  expect_refused(false, [](Problem& p) { p.y.is_virtual = true; });
  expect_refused(false, [](Problem& p) { p.x.is_virtual = true; });
}

TEST(CudnnRefuses, NumbersOfAConvolution) {
  expect_refused(false, [](Problem& p) { p.strides = {0, 1}; });
  expect_refused(false, [](Problem& p) { p.strides = {2, 1}; });  // another size of y
  expect_refused(false, [](Problem& p) { p.dilations = {1}; });
  expect_refused(false, [](Problem& p) { p.before = {-1, 1}; });
  expect_refused(false, [](Problem& p) { p.behind = {1, 2}; });
  expect_refused(false, [](Problem& p) { p.has_beta = false; });
}

TEST(CudnnRefuses, EpiloguesOfAConvolution) {
  expect_refused(true, [](Problem& p) { p.beta = 1; });
  expect_refused(true, [](Problem& p) { p.b = {{1, 1, 1, 5}, {5, 5, 5, 1}, 3}; });
  expect_refused(true, [](Problem& p) { p.z = {{1, 4, 5, 6}, {120, 30, 6, 1}, 4}; });
  expect_refused(true, [](Problem& p) { p.z.number = p.y.number; });
  expect_refused(true, [](Problem& p) { p.z.strides = {100, 1, 20, 4}; });
  expect_refused(true, [](Problem& p) { p.b.strides = {4, 1, 4, 4}; });
}

TEST(CudnnTakes, AConvolutionOfChannelsLast) {
  Problem problem;
  problem.bias = true;
  problem.x.strides = {200, 1, 40, 8};
  problem.w.strides = {72, 1, 24, 8};
  problem.y.strides = problem.z.strides = {100, 1, 20, 4};
  EXPECT_NE(problem.status(), CUDNN_STATUS_SUCCESS);
  problem.b.strides = {4, 1, 4, 4};
  EXPECT_EQ(problem.status(), CUDNN_STATUS_SUCCESS);
}

}  // namespace
}  // namespace emulated_gpu::cudnn

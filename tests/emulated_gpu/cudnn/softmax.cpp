#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>

#include <cuda_runtime.h>

#include "descriptor.h"
#include "emulated_gpu.h"

// Softmax of dense NCHW tensors, and tensor descriptors.

struct cudnnTensorStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::int64_t n = 0, c = 0, h = 0, w = 0;
};

namespace emulated_gpu::cudnn {

namespace {

struct Rows {
  std::int64_t outer, size, inner;
  std::int64_t type;
  double alpha, beta;
  bool log;

  template <class Body>
  void for_each(Body&& body) const {
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < inner; ++i) {
        body(o * size * inner + i);
      }
    }
  }
  double scaled(double value, const void* before, std::int64_t at) const {
    return alpha * value + (beta == 0 ? 0 : beta * load(type, before, at));
  }
};

void forward(const Rows& rows, const void* x, void* y) {
  rows.for_each([&](std::int64_t first) {
    double highest = -std::numeric_limits<double>::infinity();
    double sum = 0;
    for (std::int64_t k = 0; k < rows.size; ++k) {
      const double value = load(rows.type, x, first + k * rows.inner);
      highest = value > highest || std::isnan(value) ? value : highest;
    }
    for (std::int64_t k = 0; k < rows.size; ++k) {
      sum += std::exp(load(rows.type, x, first + k * rows.inner) - highest);
    }
    for (std::int64_t k = 0; k < rows.size; ++k) {
      const std::int64_t at = first + k * rows.inner;
      const double shifted = load(rows.type, x, at) - highest;
      store(rows.type, y, at, rows.scaled(rows.log ? shifted - std::log(sum) : std::exp(shifted) / sum, y, at));
    }
  });
}

void backward(const Rows& rows, const void* y, const void* dy, void* dx) {
  rows.for_each([&](std::int64_t first) {
    double sum = 0;
    for (std::int64_t k = 0; k < rows.size; ++k) {
      const std::int64_t at = first + k * rows.inner;
      sum += load(rows.type, dy, at) * (rows.log ? 1 : load(rows.type, y, at));
    }
    for (std::int64_t k = 0; k < rows.size; ++k) {
      const std::int64_t at = first + k * rows.inner;
      const double g = load(rows.type, dy, at);
      const double value = load(rows.type, y, at);
      store(rows.type, dx, at, rows.scaled(rows.log ? g - std::exp(value) * sum : value * (g - sum), dx, at));
    }
  });
}

cudnnStatus_t rows_of(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm, cudnnSoftmaxMode_t mode,
                      const void* alpha, const void* beta, const cudnnTensorStruct* tensor, Rows& rows) {
  if (const auto status = check_handle(handle); status != CUDNN_STATUS_SUCCESS) {
    return status;
  }
  if (alpha == nullptr || beta == nullptr || tensor == nullptr) {
    return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a null pointer");
  }
  if (algorithm != CUDNN_SOFTMAX_ACCURATE && algorithm != CUDNN_SOFTMAX_LOG) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an algorithm that is not emulated");
  }
  const bool wide = tensor->type == CUDNN_DATA_DOUBLE;
  const auto number = [&](const void* from) {
    return wide ? *static_cast<const double*>(from) : static_cast<double>(*static_cast<const float*>(from));
  };
  const bool whole = mode == CUDNN_SOFTMAX_MODE_INSTANCE;
  const std::int64_t area = tensor->h * tensor->w;
  rows = {.outer = tensor->n,
          .size = whole ? tensor->c * area : tensor->c,
          .inner = whole ? 1 : area,
          .type = tensor->type,
          .alpha = number(alpha),
          .beta = number(beta),
          .log = algorithm == CUDNN_SOFTMAX_LOG};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t started(cudaError_t error) {
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS
                              : refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDART, cudaGetErrorString(error));
}

// A hostile library refuses some of the problems. Otherwise it first fills the result with garbage, unless it is still
// to be read.
cudnnStatus_t prepare(cudnnHandle_t handle, const Rows& rows, void* result, std::initializer_list<const void*> read) {
  const auto word = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const Hostility mood({word(rows.outer), word(rows.size), word(rows.inner), word(rows.type), word(rows.log)});
  if (mood.once_in(4, read.size())) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "hostile: not this softmax");
  }
  if (!mood.on() || rows.beta != 0 || std::find(read.begin(), read.end(), result) != read.end()) {
    return CUDNN_STATUS_SUCCESS;
  }
  const auto bytes = static_cast<std::size_t>(rows.outer * rows.size * rows.inner * bytes_of(rows.type));
  return started(emulated_gpu::enqueue(handle->stream, "cudnn_prepare", [=] { std::memset(result, 0xFF, bytes); }));
}

}  // namespace

}  // namespace emulated_gpu::cudnn

using namespace emulated_gpu::cudnn;

extern "C" {

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  *tensor = new cudnnTensorStruct;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  delete tensor;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  if (tensor == nullptr || n < 1 || c < 1 || h < 1 || w < 1 || bytes_of(type) == 0) {
    return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor of another type, or with a size below 1");
  }
  if (format != CUDNN_TENSOR_NCHW || std::int64_t{n} * c > INT32_MAX || std::int64_t{n} * c * h > INT32_MAX ||
      std::int64_t{n} * c * h * w > INT32_MAX) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the format, or 2^31 elements");
  }
  *tensor = {type, n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm, cudnnSoftmaxMode_t mode,
                                  const void* alpha, const cudnnTensorDescriptor_t x_tensor, const void* x,
                                  const void* beta, const cudnnTensorDescriptor_t, void* y) {
  Rows rows{};
  if (const auto status = rows_of(handle, algorithm, mode, alpha, beta, x_tensor, rows);
      status != CUDNN_STATUS_SUCCESS) {
    return status;
  }
  if (!on_device(x) || !on_device(y)) {
    return refuse(CUDNN_STATUS_EXECUTION_FAILED, "an address is not memory of the device");
  }
  if (const auto status = prepare(handle, rows, y, {x}); status != CUDNN_STATUS_SUCCESS) {
    return status;
  }
  return started(emulated_gpu::enqueue(handle->stream, "cudnn_softmax_forward", [=] { forward(rows, x, y); }));
}

cudnnStatus_t cudnnSoftmaxBackward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm, cudnnSoftmaxMode_t mode,
                                   const void* alpha, const cudnnTensorDescriptor_t y_tensor, const void* y,
                                   const cudnnTensorDescriptor_t, const void* dy, const void* beta,
                                   const cudnnTensorDescriptor_t, void* dx) {
  Rows rows{};
  if (const auto status = rows_of(handle, algorithm, mode, alpha, beta, y_tensor, rows);
      status != CUDNN_STATUS_SUCCESS) {
    return status;
  }
  if (!on_device(y) || !on_device(dy) || !on_device(dx)) {
    return refuse(CUDNN_STATUS_EXECUTION_FAILED, "an address is not memory of the device");
  }
  if (dx == y) {
    return refuse(CUDNN_STATUS_BAD_PARAM, "dx is also y");
  }
  if (const auto status = prepare(handle, rows, dx, {y, dy}); status != CUDNN_STATUS_SUCCESS) {
    return status;
  }
  return started(emulated_gpu::enqueue(handle->stream, "cudnn_softmax_backward", [=] { backward(rows, y, dy, dx); }));
}

}  // extern "C"

#pragma once

#include <tandem/core/float16.h>

#include <cublasLt.h>

#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <type_traits>

#include "../test_support.h"

// A matrix product for the tests: arrays on the host, a naive result, and the call.

#define EXPECT_LT_OK(expression) EXPECT_EQ(expression, CUBLAS_STATUS_SUCCESS)
#define ASSERT_LT_OK(expression) ASSERT_EQ(expression, CUBLAS_STATUS_SUCCESS)

template <class T>
constexpr cudaDataType type_of() {
  return std::is_same_v<T, double>             ? CUDA_R_64F
         : std::is_same_v<T, float>            ? CUDA_R_32F
         : std::is_same_v<T, tandem::BFloat16> ? CUDA_R_16BF
                                               : CUDA_R_16F;
}

class Handle {
 public:
  Handle() { EXPECT_LT_OK(cublasLtCreate(&handle_)); }
  ~Handle() { EXPECT_LT_OK(cublasLtDestroy(handle_)); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator cublasLtHandle_t() const { return handle_; }

 private:
  cublasLtHandle_t handle_ = nullptr;
};

template <class Value>
void set(cublasLtMatmulDescOpaque_t& desc, cublasLtMatmulDescAttributes_t attribute, Value value) {
  EXPECT_LT_OK(cublasLtMatmulDescSetAttribute(&desc, attribute, &value, sizeof value));
}
template <class Value>
void set(cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t attribute, Value value) {
  EXPECT_LT_OK(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof value));
}
template <class Value>
void set(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
  EXPECT_LT_OK(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value));
}

// One operand, with `rows` and `cols` as stored.
template <class T>
struct Operand {
  Operand(std::int64_t rows_, std::int64_t cols_, std::int64_t padding, std::int64_t batch, unsigned seed)
      : rows(rows_), cols(cols_), ld(rows_ + padding), stride(batch > 1 ? ld * cols_ + 5 * padding : 0) {
    std::mt19937 random(seed);
    for (std::int64_t i = 0; i < (batch - 1) * stride + ld * cols; ++i) {
      // Small whole numbers make all sums exact in every order.
      host.push_back(T(static_cast<float>(static_cast<int>(random() % 7) - 3)));
    }
    EXPECT_LT_OK(cublasLtMatrixLayoutInit(&layout, type_of<T>(), rows, cols, ld));
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  std::size_t place(std::int64_t row, std::int64_t col, std::int64_t index) const {
    return static_cast<std::size_t>(row + col * ld + index * stride);
  }
  double at(std::int64_t row, std::int64_t col, std::int64_t index) const {
    return static_cast<double>(host[place(row, col, index)]);
  }

  std::int64_t rows, cols, ld, stride;
  std::vector<T> host;
  cublasLtMatrixLayoutOpaque_t layout;
};

struct Options {
  bool trans_a = false;
  bool trans_b = false;
  std::int64_t m = 13, n = 11, k = 17;
  std::int64_t batch = 1;
  std::int64_t padding = 0;  // for leading dimensions and strides
  double alpha = 1;
  double beta = 0;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};

template <class In, class Out>
struct Gemm {
  using Scalar = std::conditional_t<std::is_same_v<In, double>, double, float>;

  explicit Gemm(const Options& options_)
      : options(options_),
        a(options.trans_a ? options.k : options.m, options.trans_a ? options.m : options.k, options.padding,
          options.batch, 1),
        b(options.trans_b ? options.n : options.k, options.trans_b ? options.k : options.n, options.padding,
          options.batch, 2),
        c(options.m, options.n, 2 * options.padding, options.batch, 3),
        d(options.m, options.n, options.padding, options.batch, 4),
        bias_stride(std::max(options.m, options.n) + options.padding),
        aux_ld((options.m + 127) / 128 * 128),
        aux_stride(aux_ld * options.n + 128) {
    std::mt19937 random(5);
    for (std::int64_t i = 0; i < options.batch * bias_stride; ++i) {
      bias.push_back(Out(static_cast<float>(static_cast<int>(random() % 9) - 4) / 2));
    }
    for (std::int64_t i = 0; i < options.batch * aux_stride / 8; ++i) {
      aux.push_back(static_cast<unsigned char>(random()));
    }
    const bool f64 = std::is_same_v<In, double>;
    EXPECT_LT_OK(cublasLtMatmulDescInit(&desc, f64 ? CUBLAS_COMPUTE_64F : options.compute, type_of<Scalar>()));
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, options.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, options.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, options.epilogue);
    EXPECT_LT_OK(cublasLtMatmulPreferenceInit(&preference));
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{1} << 20);
  }

  void upload() {
    device_a.emplace(a.host);
    device_b.emplace(b.host);
    device_c.emplace(c.host);
    device_d.emplace(d.host);
    device_bias.emplace(bias);
    device_aux.emplace(aux);
    workspace.emplace(std::size_t{1} << 20);
    set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(device_bias->data()));
    set(desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, bias_stride);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(device_aux->data()));
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, aux_stride);
  }

  cublasStatus_t ask(std::vector<cublasLtMatmulHeuristicResult_t>& found, int count = 8) {
    found.assign(static_cast<std::size_t>(count), cublasLtMatmulHeuristicResult_t{});
    int returned = -1;
    const auto status = cublasLtMatmulAlgoGetHeuristic(handle, &desc, &a.layout, &b.layout, &c.layout, &d.layout,
                                                       &preference, count, found.data(), &returned);
    found.resize(static_cast<std::size_t>(std::max(returned, 0)));
    return status;
  }

  cublasStatus_t call(const cublasLtMatmulAlgo_t* algo, cudaStream_t on) {
    auto alpha = static_cast<Scalar>(options.alpha);
    auto beta = static_cast<Scalar>(options.beta);
    const auto status = cublasLtMatmul(handle, &desc, &alpha, device_a->data(), &a.layout, device_b->data(), &b.layout,
                                       &beta, device_c->data(), &c.layout, device_d->data(), &d.layout, algo,
                                       workspace->data(), std::size_t{1} << 20, on);
    alpha = beta = 77;  // the call must have read them already
    return status;
  }

  // The expected D before rounding, after the epilogue. Also computes the new mask and the bias gradient.
  double expected(std::int64_t i, std::int64_t j, std::int64_t index) const {
    double sum = 0;
    for (std::int64_t l = 0; l < options.k; ++l) {
      sum += (options.trans_a ? a.at(l, i, index) : a.at(i, l, index)) *
             (options.trans_b ? b.at(j, l, index) : b.at(l, j, index));
    }
    sum = options.alpha * sum + (options.beta == 0 ? 0 : options.beta * c.at(i, j, index));
    if ((options.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
      sum += static_cast<double>(bias[static_cast<std::size_t>(i + index * bias_stride)]);
    }
    if ((options.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) {
      return std::max(sum, 0.0);
    }
    if ((options.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
      return 0.5 * sum * (1 + std::tanh(std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum)));
    }
    if ((options.epilogue & CUBLASLT_EPILOGUE_DRELU) == CUBLASLT_EPILOGUE_DRELU) {
      return bit(aux, i, j, index) ? sum : 0;
    }
    return sum;
  }
  bool bit(const std::vector<unsigned char>& mask, std::int64_t i, std::int64_t j, std::int64_t index) const {
    const std::int64_t place = i + j * aux_ld + index * aux_stride;
    return (mask[static_cast<std::size_t>(place / 8)] >> place % 8 & 1) != 0;
  }

  // Call it when the stream is done. Checks D and the other outputs, and that nothing else was written.
  void check(double tolerance = 0) {
    const std::vector<Out> got = device_d->values();
    std::vector<Out> want = d.host;
    for (std::int64_t index = 0; index < options.batch; ++index) {
      for (std::int64_t j = 0; j < options.n; ++j) {
        for (std::int64_t i = 0; i < options.m; ++i) {
          want[d.place(i, j, index)] = Out(static_cast<Scalar>(expected(i, j, index)));
        }
      }
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto value = static_cast<double>(want[i]);
      ASSERT_NEAR(static_cast<double>(got[i]), value, tolerance * std::max(1.0, std::abs(value))) << "element " << i;
    }
    check_mask();
    check_bias();
  }

  void check_mask() {
    const std::vector<unsigned char> got = device_aux->values();
    if (options.epilogue != CUBLASLT_EPILOGUE_RELU_AUX && options.epilogue != CUBLASLT_EPILOGUE_RELU_AUX_BIAS) {
      EXPECT_EQ(got, aux);
      return;
    }
    for (std::int64_t index = 0; index < options.batch; ++index) {
      for (std::int64_t j = 0; j < options.n; ++j) {
        for (std::int64_t i = 0; i < options.m; ++i) {
          ASSERT_EQ(bit(got, i, j, index), expected(i, j, index) > 0) << i << ' ' << j << ' ' << index;
        }
      }
    }
  }

  void check_bias() {
    std::vector<Out> want = bias;
    for (std::int64_t index = 0; index < options.batch; ++index) {
      const auto put = [&](std::int64_t i, double sum) {
        want[static_cast<std::size_t>(i + index * bias_stride)] = Out(static_cast<Scalar>(sum));
      };
      for (std::int64_t i = 0; i < options.m && options.epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < options.n; ++j) {
          sum += expected(i, j, index);
        }
        put(i, sum);
      }
      for (std::int64_t i = 0; i < options.m && options.epilogue == CUBLASLT_EPILOGUE_BGRADA; ++i) {
        double sum = 0;
        for (std::int64_t l = 0; l < options.k; ++l) {
          sum += options.trans_a ? a.at(l, i, index) : a.at(i, l, index);
        }
        put(i, sum);
      }
      for (std::int64_t j = 0; j < options.n && options.epilogue == CUBLASLT_EPILOGUE_BGRADB; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < options.k; ++l) {
          sum += options.trans_b ? b.at(j, l, index) : b.at(l, j, index);
        }
        put(j, sum);
      }
    }
    const std::vector<Out> got = device_bias->values();
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(static_cast<double>(got[i]), static_cast<double>(want[i])) << "bias " << i;
    }
  }

  Options options;
  Operand<In> a, b;
  Operand<Out> c, d;
  std::int64_t bias_stride, aux_ld, aux_stride;
  std::vector<Out> bias;
  std::vector<unsigned char> aux;
  std::optional<Array<In>> device_a, device_b;
  std::optional<Array<Out>> device_c, device_d, device_bias;
  std::optional<Array<unsigned char>> device_aux, workspace;
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatmulPreferenceOpaque_t preference;
  Handle handle;
};

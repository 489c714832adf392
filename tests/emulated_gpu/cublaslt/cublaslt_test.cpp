#include <algorithm>
#include <limits>

#include "gemm.h"

namespace {

constexpr cublasLtEpilogue_t kExact[] = {
    CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_RELU,  CUBLASLT_EPILOGUE_RELU_BIAS,
    CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU, CUBLASLT_EPILOGUE_DRELU_BGRAD,
    CUBLASLT_EPILOGUE_BGRADA,   CUBLASLT_EPILOGUE_BGRADB,
};

int id_of(const cublasLtMatmulAlgo_t& algo) {
  int id = 0;
  EXPECT_LT_OK(cublasLtMatmulAlgoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, nullptr));
  return id;
}

// Runs every algorithm and checks its result.
template <class In, class Out>
void compute_and_check(const Options& options, double tolerance = 0, std::size_t algos = 3) {
  SCOPED_TRACE(testing::Message() << "A " << type_of<In>() << " D " << type_of<Out>() << (options.trans_a ? " T" : " N")
                                  << (options.trans_b ? "T" : "N") << " epilogue " << options.epilogue << " batch "
                                  << options.batch << " padding " << options.padding << " m " << options.m);
  Gemm<In, Out> gemm(options);
  const Stream stream;
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  gemm.upload();
  ASSERT_LT_OK(gemm.ask(found));
  ASSERT_EQ(found.size(), algos);
  for (const auto& result : found) {
    SCOPED_TRACE(testing::Message() << "algo " << id_of(result.algo));
    gemm.upload();
    ASSERT_LT_OK(gemm.call(&result.algo, stream));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    ASSERT_NO_FATAL_FAILURE(gemm.check(tolerance));
  }
}

template <class In, class Out>
void every_transposition(Options options, double tolerance = 0) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      options.trans_a = trans_a;
      options.trans_b = trans_b;
      compute_and_check<In, Out>(options, tolerance);
    }
  }
}

template <class Types>
class OfTypes : public testing::Test {};
using Combinations = testing::Types<std::pair<float, float>, std::pair<double, double>,
                                    std::pair<tandem::BFloat16, tandem::BFloat16>, std::pair<tandem::BFloat16, float>,
                                    std::pair<tandem::Float16, tandem::Float16>, std::pair<tandem::Float16, float>>;
TYPED_TEST_SUITE(OfTypes, Combinations);

TYPED_TEST(OfTypes, MultipliesAndScales) {
  using In = typename TypeParam::first_type;
  using Out = typename TypeParam::second_type;
  every_transposition<In, Out>({});
  every_transposition<In, Out>({.padding = 3, .alpha = 0.5, .beta = -2});
  every_transposition<In, Out>({.m = 1, .n = 1, .k = 2});
  every_transposition<In, Out>({.m = 40, .n = 9, .k = 300, .alpha = -0.25});
  every_transposition<In, Out>({.batch = 3, .padding = 2, .beta = 1});
}

TYPED_TEST(OfTypes, EpiloguesAreExact) {
  using In = typename TypeParam::first_type;
  using Out = typename TypeParam::second_type;
  if (std::is_same_v<In, double>) {
    GTEST_SKIP() << "f64 has none";
  }
  for (const auto epilogue : kExact) {
    every_transposition<In, Out>({.alpha = 0.5, .beta = 1, .epilogue = epilogue});
    every_transposition<In, Out>({.m = 130, .n = 3, .k = 4, .batch = 2, .padding = 1, .epilogue = epilogue});
  }
}

TYPED_TEST(OfTypes, Gelu) {
  using In = typename TypeParam::first_type;
  using Out = typename TypeParam::second_type;
  if (!std::is_same_v<In, double>) {
    const double tolerance = sizeof(Out) == 2 ? 0.01 : 1e-5;
    compute_and_check<In, Out>({.alpha = 0.125, .epilogue = CUBLASLT_EPILOGUE_GELU}, tolerance);
    compute_and_check<In, Out>({.alpha = 0.125, .epilogue = CUBLASLT_EPILOGUE_GELU_BIAS}, tolerance);
  }
}

TEST(CublasLt, OneProductPerElementHasNoSplitK) { compute_and_check<float, float>({.k = 1}, 0, 2); }

TEST(CublasLt, BatchStrideOfZeroRepeatsAnInput) {
  Gemm<float, float> gemm({.batch = 3});
  gemm.b.stride = 0;
  set(gemm.b.layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, std::int64_t{0});
  const Stream stream;
  gemm.upload();
  EXPECT_LT_OK(gemm.call(nullptr, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  gemm.check();
}

TEST(CublasLt, LeadingDimensionOfZeroRepeatsACOfOneColumn) {
  Gemm<float, float> gemm({.beta = 1});
  gemm.c.ld = 0;
  set(gemm.c.layout, CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{0});
  const Stream stream;
  gemm.upload();
  EXPECT_LT_OK(gemm.call(nullptr, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  gemm.check();
}

TEST(CublasLt, InPlace) {
  Gemm<float, float> gemm({.beta = 1});
  const Stream stream;
  gemm.upload();
  const float one = 1;
  EXPECT_LT_OK(cublasLtMatmul(gemm.handle, &gemm.desc, &one, gemm.device_a->data(), &gemm.a.layout,
                              gemm.device_b->data(), &gemm.b.layout, &one, gemm.device_d->data(), nullptr,
                              gemm.device_d->data(), &gemm.d.layout, nullptr, nullptr, 0, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  gemm.c.host = gemm.d.host;
  gemm.check();
}

TEST(CublasLt, CIsNotReadWhenBetaIsZero) {
  Gemm<float, float> gemm({});
  std::fill(gemm.c.host.begin(), gemm.c.host.end(), std::numeric_limits<float>::quiet_NaN());
  const Stream stream;
  gemm.upload();
  EXPECT_LT_OK(gemm.call(nullptr, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  gemm.check();
}

TEST(CublasLt, ReluOfNanIsZero) {
  Gemm<float, float> gemm({.epilogue = CUBLASLT_EPILOGUE_RELU_AUX});
  std::fill(gemm.a.host.begin(), gemm.a.host.end(), std::numeric_limits<float>::quiet_NaN());
  const Stream stream;
  gemm.upload();
  EXPECT_LT_OK(gemm.call(nullptr, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(gemm.device_d->values(), std::vector<float>(gemm.d.host.size()));
  EXPECT_FALSE(gemm.bit(gemm.device_aux->values(), 0, 0, 0));
}

TEST(CublasLt, RunsWithTheStream) {
  Gemm<float, float> gemm({});
  const Stream stream;
  gemm.upload();
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  ASSERT_LT_OK(gemm.ask(found));
  EXPECT_LT_OK(gemm.call(&found[0].algo, stream));  // split-K
  EXPECT_EQ(emulated_gpu::pending_tasks(), 2U);
  EXPECT_EQ(gemm.device_d->values(), gemm.d.host);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  gemm.check();
}

TEST(CublasLt, CapturedAsKernels) {
  Gemm<float, float> gemm({});
  const Stream stream;
  gemm.upload();
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  ASSERT_LT_OK(gemm.ask(found));
  const std::size_t kernels[] = {2, 1, 1};
  for (std::size_t i = 0; i < found.size(); ++i) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    std::size_t count = 0;
    gemm.upload();
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_LT_OK(gemm.call(&found[i].algo, stream));
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    EXPECT_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
    EXPECT_EQ(count, kernels[i]);
    EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    EXPECT_CUDA(cudaGraphLaunch(exec, stream));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    gemm.check();
    EXPECT_CUDA(cudaGraphExecDestroy(exec));
    EXPECT_CUDA(cudaGraphDestroy(graph));
  }
}

TEST(CublasLt, Tf32RoundsInputs) {
  Gemm<float, float> gemm({.m = 4, .n = 1, .k = 4, .compute = CUBLAS_COMPUTE_32F_FAST_TF32});
  std::fill(gemm.a.host.begin(), gemm.a.host.end(), 0.0F);
  // Values: a tie to even below, a tie to even above, less than half a unit, a large number that must not become
  // infinite.
  const float values[] = {1 + 0x1p-11F, 1 + 0x3p-11F, 1 + 0x1.8p-12F, -0x1.FFDp127F};
  const float rounded[] = {1, 1 + 0x1p-9F, 1, -0x1.FFCp127F};
  for (std::size_t i = 0; i < 4; ++i) {
    gemm.a.host[5 * i] = values[i];
  }
  std::fill(gemm.b.host.begin(), gemm.b.host.end(), 1.0F);
  const Stream stream;
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  gemm.upload();
  ASSERT_LT_OK(gemm.ask(found));
  EXPECT_LT_OK(gemm.call(&found[1].algo, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(gemm.device_d->values(), std::vector<float>(rounded, rounded + 4));

  // Without the alignment another algorithm runs, which does not round.
  set(gemm.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{4});
  ASSERT_LT_OK(gemm.ask(found));
  EXPECT_EQ(id_of(found[1].algo), 12);
  EXPECT_LT_OK(gemm.call(&found[1].algo, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(gemm.device_d->values(), std::vector<float>(values, values + 4));
}

TEST(CublasLt, AlgosDifferInTheirOrderOfSummation) {
  Gemm<float, float> gemm({.m = 16, .n = 16, .k = 500});
  std::mt19937 random(6);
  for (float& value : gemm.a.host) {
    value = std::uniform_real_distribution<float>(-1, 1)(random);
  }
  const Stream stream;
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  std::vector<std::vector<float>> results;
  gemm.upload();
  ASSERT_LT_OK(gemm.ask(found));
  for (const auto& result : found) {
    EXPECT_LT_OK(gemm.call(&result.algo, stream));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    gemm.check(3e-5);
    results.push_back(gemm.device_d->values());
  }
  EXPECT_NE(results[0], results[1]);
  EXPECT_NE(results[1], results[2]);
  EXPECT_NE(results[0], results[2]);
  EXPECT_LT_OK(gemm.call(&found[0].algo, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(gemm.device_d->values(), results[0]);
}

}  // namespace

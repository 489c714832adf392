#include "gemm.h"

namespace {

constexpr auto kInvalid = CUBLAS_STATUS_INVALID_VALUE;
constexpr auto kUnsupported = CUBLAS_STATUS_NOT_SUPPORTED;

using F32 = Gemm<float, float>;
using Found = std::vector<cublasLtMatmulHeuristicResult_t>;

// Expects `status` from both the search for algorithms and the product, after `change`.
template <class Change>
void expect_refused(cublasStatus_t status, const Options& options, Change change) {
  F32 gemm(options);
  const Stream stream;
  Found found;
  gemm.upload();
  change(gemm);
  EXPECT_EQ(gemm.ask(found), status);
  EXPECT_TRUE(found.empty());
  EXPECT_EQ(gemm.call(nullptr, stream), status);
}

TEST(CublasLtRefuses, Layouts) {
  expect_refused(kUnsupported, {},
                 [](F32& gemm) { set(gemm.a.layout, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_ROW); });
  expect_refused(kUnsupported, {},
                 [](F32& gemm) { set(gemm.d.layout, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_ROW); });
  expect_refused(kInvalid, {}, [](F32& gemm) { set(gemm.b.layout, CUBLASLT_MATRIX_LAYOUT_LD, gemm.b.rows - 1); });
  expect_refused(kInvalid, {}, [](F32& gemm) { set(gemm.d.layout, CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{0}); });
  expect_refused(kInvalid, {}, [](F32& gemm) { set(gemm.b.layout, CUBLASLT_MATRIX_LAYOUT_ROWS, std::uint64_t{5}); });
  expect_refused(kInvalid, {}, [](F32& gemm) { set(gemm.b.layout, CUBLASLT_MATRIX_LAYOUT_COLS, std::uint64_t{0}); });
  expect_refused(kInvalid, {}, [](F32& gemm) { set(gemm.a.layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 2); });
  expect_refused(kInvalid, {.batch = 2},
                 [](F32& gemm) { set(gemm.d.layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, std::int64_t{0}); });
  expect_refused(kInvalid, {}, [](F32& gemm) { gemm.a.layout = {}; });
}

TEST(CublasLtRefuses, Types) {
  expect_refused(kUnsupported, {}, [](F32& gemm) {
    set(gemm.b.layout, CUBLASLT_MATRIX_LAYOUT_TYPE, static_cast<std::uint32_t>(CUDA_R_16F));
  });
  expect_refused(kUnsupported, {}, [](F32& gemm) {
    set(gemm.c.layout, CUBLASLT_MATRIX_LAYOUT_TYPE, static_cast<std::uint32_t>(CUDA_R_16F));
  });
  expect_refused(kUnsupported, {}, [](F32& gemm) { set(gemm.desc, CUBLASLT_MATMUL_DESC_SCALE_TYPE, CUDA_R_64F); });
  expect_refused(kUnsupported, {},
                 [](F32& gemm) { set(gemm.desc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_16F); });
  expect_refused(kUnsupported, {},
                 [](F32& gemm) { set(gemm.desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE); });
  expect_refused(kInvalid, {}, [](F32& gemm) {
    set(gemm.desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<void*>(gemm.device_a->data()));
  });
}

TEST(CublasLtRefuses, Epilogues) {
  for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_BGRADB}) {
    Gemm<double, double> gemm({.epilogue = epilogue});
    Found found;
    gemm.upload();
    EXPECT_EQ(gemm.ask(found), kUnsupported);
  }
  expect_refused(kUnsupported, {.epilogue = CUBLASLT_EPILOGUE_DGELU}, [](F32&) {});
  for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA}) {
    expect_refused(kInvalid, {.epilogue = epilogue},
                   [](F32& gemm) { set(gemm.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(nullptr)); });
  }
  expect_refused(kUnsupported, {.epilogue = CUBLASLT_EPILOGUE_BIAS},
                 [](F32& gemm) { set(gemm.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16F); });
  for (const auto epilogue : {CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_DRELU}) {
    expect_refused(kInvalid, {.epilogue = epilogue}, [](F32& gemm) {
      set(gemm.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(nullptr));
    });
    expect_refused(kInvalid, {.epilogue = epilogue},
                   [](F32& gemm) { set(gemm.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{64}); });
    expect_refused(kInvalid, {.m = 129, .epilogue = epilogue},
                   [](F32& gemm) { set(gemm.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{128}); });
    expect_refused(kUnsupported, {.epilogue = epilogue}, [](F32& gemm) {
      set(gemm.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(gemm.device_aux->data() + 8));
    });
  }
}

TEST(CublasLtRefuses, GradientsOfOneRowColumnOrProduct) {
  for (const auto epilogue : {CUBLASLT_EPILOGUE_DRELU, CUBLASLT_EPILOGUE_DRELU_BGRAD}) {
    expect_refused(kUnsupported, {.k = 1, .epilogue = epilogue}, [](F32&) {});
  }
  expect_refused(kUnsupported, {.m = 1, .epilogue = CUBLASLT_EPILOGUE_BGRADA}, [](F32&) {});
  expect_refused(kUnsupported, {.n = 1, .epilogue = CUBLASLT_EPILOGUE_BGRADB}, [](F32&) {});
}

TEST(CublasLtRefuses, MasksAndBiasGradientsOverMatrices) {
  const auto expect_invalid = [](cublasLtEpilogue_t epilogue, cublasLtMatmulDescAttributes_t what, auto place) {
    F32 gemm({.epilogue = epilogue});
    const Stream stream;
    gemm.upload();
    set(gemm.desc, what, static_cast<void*>(place(gemm)));
    EXPECT_EQ(gemm.call(nullptr, stream), kInvalid);
  };
  const auto d = [](F32& gemm) { return gemm.device_d->data(); };
  const auto b = [](F32& gemm) { return gemm.device_b->data(); };
  expect_invalid(CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, d);
  expect_invalid(CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, b);
  expect_invalid(CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_MATMUL_DESC_BIAS_POINTER, d);
  expect_invalid(CUBLASLT_EPILOGUE_BGRADB, CUBLASLT_MATMUL_DESC_BIAS_POINTER, b);
}

TEST(CublasLtRefuses, AddressesLessAlignedThanAskedFor) {
  F32 gemm({.m = 8, .n = 8, .k = 8});
  const Stream stream;
  Found found;
  gemm.upload();
  const Array<float> more(std::size_t{65});
  const float one = 1;
  const float zero = 0;
  const auto call = [&](const cublasLtMatmulAlgo_t& algo, const float* c, float* d) {
    return cublasLtMatmul(gemm.handle, &gemm.desc, &one, gemm.device_a->data(), &gemm.a.layout, gemm.device_b->data(),
                          &gemm.b.layout, &zero, c, &gemm.c.layout, d, &gemm.d.layout, &algo, nullptr, 0, stream);
  };
  ASSERT_LT_OK(gemm.ask(found));
  EXPECT_EQ(call(found[1].algo, gemm.device_c->data(), more.data() + 1), kUnsupported);
  EXPECT_EQ(call(found[1].algo, more.data() + 1, gemm.device_d->data()), kUnsupported);
  EXPECT_LT_OK(call(found[1].algo, gemm.device_c->data(), more.data()));
  set(gemm.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{4});
  ASSERT_LT_OK(gemm.ask(found));
  EXPECT_LT_OK(call(found[1].algo, gemm.device_c->data(), more.data() + 1));
  set(gemm.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{2});
  EXPECT_EQ(gemm.ask(found), kUnsupported);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
}

TEST(CublasLtRefuses, ABiasLessAlignedThanTheOneShown) {
  F32 gemm({.epilogue = CUBLASLT_EPILOGUE_BIAS});
  const Stream stream;
  Found found;
  gemm.upload();
  ASSERT_LT_OK(gemm.ask(found));
  set(gemm.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(gemm.device_bias->data() + 1));
  EXPECT_EQ(gemm.call(&found[1].algo, stream), kUnsupported);
}

TEST(CublasLtRefuses, OtherOperands) {
  F32 gemm({});
  const Stream stream;
  gemm.upload();
  const float one = 1;
  float on_host[256] = {};
  const auto call = [&](const float* alpha, const float* a, const float* c, float* d) {
    return cublasLtMatmul(gemm.handle, &gemm.desc, alpha, a, &gemm.a.layout, gemm.device_b->data(), &gemm.b.layout,
                          &one, c, &gemm.c.layout, d, &gemm.d.layout, nullptr, nullptr, 0, stream);
  };
  const float* a = gemm.device_a->data();
  const float* c = gemm.device_c->data();
  float* d = gemm.device_d->data();
  EXPECT_EQ(call(nullptr, a, c, d), kInvalid);
  EXPECT_EQ(call(&one, nullptr, c, d), kInvalid);
  EXPECT_EQ(call(&one, a, nullptr, d), kInvalid);
  EXPECT_EQ(call(&one, d, c, d), kInvalid);
  EXPECT_EQ(call(&one, on_host, c, d), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_LT_OK(call(&one, a, c, d));
  EXPECT_EQ(cublasLtMatmul(nullptr, &gemm.desc, &one, a, &gemm.a.layout, gemm.device_b->data(), &gemm.b.layout, &one, c,
                           &gemm.c.layout, d, &gemm.d.layout, nullptr, nullptr, 0, stream),
            CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_CUDA(cudaSetDevice(1));
  EXPECT_EQ(call(&one, a, c, d), kInvalid);
  EXPECT_CUDA(cudaSetDevice(0));
  EXPECT_EQ(gemm.call(nullptr, nullptr), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  emulated_gpu::reset();
}

TEST(CublasLtRefuses, TooLittleWorkspace) {
  F32 gemm({});
  const Stream stream;
  Found found;
  gemm.upload();
  ASSERT_LT_OK(gemm.ask(found));
  const std::size_t needed = found[0].workspaceSize;
  EXPECT_EQ(needed, 2 * sizeof(float) * 13 * 11);
  const float one = 1;
  const auto call = [&](void* workspace, std::size_t size) {
    return cublasLtMatmul(gemm.handle, &gemm.desc, &one, gemm.device_a->data(), &gemm.a.layout, gemm.device_b->data(),
                          &gemm.b.layout, &one, gemm.device_c->data(), &gemm.c.layout, gemm.device_d->data(),
                          &gemm.d.layout, &found[0].algo, workspace, size, stream);
  };
  EXPECT_EQ(call(gemm.workspace->data(), needed - 1), kInvalid);
  EXPECT_EQ(call(nullptr, needed), kInvalid);
  EXPECT_EQ(call(gemm.workspace->data() + 8, needed), kInvalid);
  EXPECT_LT_OK(call(gemm.workspace->data(), needed));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
}

TEST(CublasLtHeuristic, FollowsThePreference) {
  F32 gemm({.m = 500, .n = 500, .k = 8, .epilogue = CUBLASLT_EPILOGUE_RELU});
  Found found;
  set(gemm.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{1} << 24);
  const auto ids = [&] {
    std::vector<int> values;
    for (const auto& result : found) {
      EXPECT_EQ(result.state, CUBLAS_STATUS_SUCCESS);
      int id = 0;
      EXPECT_LT_OK(
          cublasLtMatmulAlgoConfigGetAttribute(&result.algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, nullptr));
      values.push_back(id);
    }
    return values;
  };
  ASSERT_LT_OK(gemm.ask(found));
  EXPECT_EQ(ids(), (std::vector{1, 2, 3}));
  EXPECT_LT(found[0].wavesCount, found[1].wavesCount);
  EXPECT_LT(found[1].wavesCount, found[2].wavesCount);
  const float waves = found[1].wavesCount;
  ASSERT_LT_OK(gemm.ask(found, 2));
  EXPECT_EQ(ids(), (std::vector{1, 2}));
  EXPECT_EQ(gemm.ask(found, 0), kInvalid);

  set(gemm.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_INPLACE));
  ASSERT_LT_OK(gemm.ask(found));
  EXPECT_EQ(ids(), (std::vector{2, 3}));
  set(gemm.preference, CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, waves);
  ASSERT_LT_OK(gemm.ask(found));
  EXPECT_EQ(ids(), (std::vector{2}));
  set(gemm.preference, CUBLASLT_MATMUL_PREF_IMPL_MASK,
      std::uint64_t{CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK | CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F});
  EXPECT_EQ(gemm.ask(found), kUnsupported);

  F32 without_workspace({});
  set(without_workspace.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{0});
  ASSERT_LT_OK(without_workspace.ask(found));
  EXPECT_EQ(ids(), (std::vector{2, 3}));
}

TEST(CublasLtHeuristic, AlgosAreCheckedAgainstTheProblem) {
  F32 gemm({});
  Found found;
  cublasLtMatmulHeuristicResult_t result{};
  gemm.upload();
  ASSERT_LT_OK(gemm.ask(found));
  cublasLtMatmulAlgo_t algo = found[0].algo;
  const auto check = [&] {
    return cublasLtMatmulAlgoCheck(gemm.handle, &gemm.desc, &gemm.a.layout, &gemm.b.layout, &gemm.c.layout,
                                   &gemm.d.layout, &algo, &result);
  };
  EXPECT_LT_OK(check());
  EXPECT_EQ(result.workspaceSize, found[0].workspaceSize);
  const std::int32_t splits = 5;
  EXPECT_LT_OK(cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits));
  EXPECT_EQ(check(), kUnsupported);
  EXPECT_EQ(cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_ID, &splits, sizeof splits), kInvalid);
  algo = {};
  EXPECT_EQ(check(), kInvalid);
  algo = found[1].algo;
  set(gemm.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU);
  EXPECT_EQ(check(), kInvalid);
}

TEST(CublasLtDescriptors, HaveTheLibrarysDefaultsAndSizes) {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  ASSERT_LT_OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  ASSERT_LT_OK(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, 3, 4, 5));
  ASSERT_LT_OK(cublasLtMatmulPreferenceCreate(&preference));
  std::int64_t value = 0;
  std::size_t size = 0;
  EXPECT_LT_OK(cublasLtMatmulDescGetAttribute(desc, CUBLASLT_MATMUL_DESC_FILL_MODE, &value, 4, &size));
  EXPECT_EQ(value, CUBLAS_FILL_MODE_FULL);
  EXPECT_EQ(size, 4U);
  EXPECT_LT_OK(cublasLtMatmulDescGetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, nullptr, 0, &size));
  EXPECT_EQ(size, 8U);
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &value, 8), kInvalid);
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, nullptr, 4), kInvalid);
  EXPECT_LT_OK(cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_LD, &value, 8, nullptr));
  EXPECT_EQ(value, 5);
  std::uint32_t mask = 0;
  EXPECT_LT_OK(
      cublasLtMatmulPreferenceGetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &mask, 4, nullptr));
  EXPECT_EQ(mask, 7U);
  EXPECT_EQ(cublasLtMatrixLayoutInit_internal(layout, 8, CUDA_R_32F, 1, 1, 1), CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_LT_OK(cublasLtMatmulDescDestroy(desc));
  EXPECT_LT_OK(cublasLtMatrixLayoutDestroy(layout));
  EXPECT_LT_OK(cublasLtMatmulPreferenceDestroy(preference));
  EXPECT_EQ(cublasLtGetVersion(), std::size_t{CUBLAS_VERSION});
  EXPECT_STREQ(cublasLtGetStatusName(kUnsupported), "CUBLAS_STATUS_NOT_SUPPORTED");
  EXPECT_STREQ(cublasLtGetStatusString(kUnsupported), "the requested functionality is not supported");
}

}  // namespace

#include <algorithm>
#include <cmath>

#include "emulated_gpu.h"
#include "gemm.h"

// The hostile library is as bad as it claims to be, and its results are right.

namespace {

class Hostile {
 public:
  explicit Hostile(std::uint64_t seed) { emulated_gpu::be_hostile(seed); }
  ~Hostile() { emulated_gpu::be_hostile(0); }
  Hostile(const Hostile&) = delete;
  Hostile& operator=(const Hostile&) = delete;
};

using Product = Gemm<float, float>;

// The usable results of a search.
std::vector<cublasLtMatmulHeuristicResult_t> usable(Product& product) {
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  product.ask(found);
  std::erase_if(found, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  return found;
}

Options with(std::int64_t n, cublasLtEpilogue_t epilogue) { return {.n = n, .epilogue = epilogue}; }

TEST(HostileCublasLt, OffersNothingForSomeEpiloguesAlwaysTheSameOnes) {
  const Hostile hostile(1);
  std::vector<bool> first;
  for (int round = 0; round < 2; ++round) {
    std::vector<bool> offers;
    for (std::int64_t n = 1; n <= 40; ++n) {
      Product product(with(n, CUBLASLT_EPILOGUE_RELU_BIAS));
      product.upload();
      offers.push_back(!usable(product).empty());
    }
    EXPECT_GT(std::count(offers.begin(), offers.end(), true), 10);
    EXPECT_GT(std::count(offers.begin(), offers.end(), false), 5);
    first = round == 0 ? offers : first;
    EXPECT_EQ(offers, first);
  }
}

TEST(HostileCublasLt, MixesResultsThatAreNotUsableWithOthersInAnyOrder) {
  const Hostile hostile(1);
  int unusable = 0;
  int workspace_first = 0;
  for (std::int64_t n = 1; n <= 40; ++n) {
    Product product(with(n, CUBLASLT_EPILOGUE_DEFAULT));
    std::vector<cublasLtMatmulHeuristicResult_t> found;
    ASSERT_LT_OK(product.ask(found));
    unusable += found[0].state != CUBLAS_STATUS_SUCCESS ? 1 : 0;
    workspace_first += usable(product)[0].workspaceSize > 0 ? 1 : 0;
  }
  EXPECT_GT(unusable, 5);
  EXPECT_GT(workspace_first, 5);
  EXPECT_LT(workspace_first, 35);
}

TEST(HostileCublasLt, RefusesSomeOfItsOwnProposalsAndNeverAllForAPlainProduct) {
  const Hostile hostile(2);
  int refused = 0;
  for (std::int64_t n = 1; n <= 40; ++n) {
    Product product(with(n, CUBLASLT_EPILOGUE_DEFAULT));
    product.upload();
    const Stream stream;
    bool done = false;
    for (const auto& result : usable(product)) {
      const cublasStatus_t status = product.call(&result.algo, stream);
      ASSERT_TRUE(status == CUBLAS_STATUS_SUCCESS || status == CUBLAS_STATUS_NOT_SUPPORTED);
      done = done || status == CUBLAS_STATUS_SUCCESS;
      refused += status == CUBLAS_STATUS_NOT_SUPPORTED ? 1 : 0;
    }
    EXPECT_TRUE(done) << n;
    EXPECT_CUDA(cudaStreamSynchronize(stream));
  }
  EXPECT_GT(refused, 5);
}

TEST(HostileCublasLt, SplitsAProductIntoKernelsAndLeavesGarbageInTheWorkspace) {
  const Hostile hostile(3);
  std::size_t most_kernels = 0;
  for (std::int64_t n = 1; n <= 10; ++n) {
    Product product(with(n, CUBLASLT_EPILOGUE_DEFAULT));
    product.upload();
    for (const auto& result : usable(product)) {
      const Stream stream;
      if (product.call(&result.algo, stream) != CUBLAS_STATUS_SUCCESS) {
        continue;
      }
      most_kernels = std::max(most_kernels, emulated_gpu::pending_tasks());
      EXPECT_CUDA(cudaStreamSynchronize(stream));
      const std::vector<unsigned char> left = product.workspace->values();
      EXPECT_EQ(std::count(left.begin(), left.end(), 0xFF), static_cast<std::ptrdiff_t>(left.size()));
      product.check();
    }
  }
  EXPECT_EQ(most_kernels, 9U);  // five parts, and four kernels before and after
}

TEST(HostileCublasLt, FillsTheResultWithNaNFirst) {
  const Hostile hostile(4);
  Product product(with(5, CUBLASLT_EPILOGUE_DEFAULT));
  product.upload();
  const Stream stream;
  const auto found = usable(product);
  ASSERT_TRUE(std::any_of(found.begin(), found.end(), [&](const auto& result) {
    return product.call(&result.algo, stream) == CUBLAS_STATUS_SUCCESS;
  }));
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);  // runs one kernel
  for (const float value : product.device_d->values()) {
    EXPECT_TRUE(std::isnan(value));
  }
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  product.check();
}

template <class In, class Out>
void check_all(const Options& options) {
  int done = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Hostile hostile(seed);
    Gemm<In, Out> gemm(options);
    gemm.upload();
    std::vector<cublasLtMatmulHeuristicResult_t> found;
    gemm.ask(found);
    const Stream stream;
    for (const auto& result : found) {
      if (result.state == CUBLAS_STATUS_SUCCESS && gemm.call(&result.algo, stream) == CUBLAS_STATUS_SUCCESS) {
        EXPECT_CUDA(cudaStreamSynchronize(stream));
        gemm.check();
        ++done;
        break;
      }
    }
  }
  EXPECT_GT(done, 5);
}

TEST(HostileCublasLt, ResultsAreRight) {
  for (const auto epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU_BGRAD,
                              CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB}) {
    check_all<float, float>({.m = 20, .batch = 2, .padding = 1, .beta = 1, .epilogue = epilogue});
    check_all<tandem::BFloat16, tandem::BFloat16>({.m = 130, .n = 3, .k = 4, .epilogue = epilogue});
  }
  check_all<double, double>({.trans_a = true, .batch = 3, .padding = 3, .alpha = 0.5});
}

}  // namespace

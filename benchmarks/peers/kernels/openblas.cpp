#include <cblas-openblas.h>

#include "peers_of.h"

// OpenBLAS: products and the few element-wise functions of BLAS.

namespace bench::kernel {

namespace {

// c [m, n] = a b, both given as row-major matrices that may be transposed.
template <class T>
void gemm(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const void* a,
          const void* b, void* c) {
  const auto rows = static_cast<blasint>(m);
  const auto columns = static_cast<blasint>(n);
  const auto depth = static_cast<blasint>(k);
  const auto left = a_transposed ? CblasTrans : CblasNoTrans;
  const auto right = b_transposed ? CblasTrans : CblasNoTrans;
  const blasint lda = a_transposed ? rows : depth;
  const blasint ldb = b_transposed ? depth : columns;
  if constexpr (sizeof(T) == 4) {
    cblas_sgemm(CblasRowMajor, left, right, rows, columns, depth, 1, static_cast<const T*>(a), lda,
                static_cast<const T*>(b), ldb, 0, static_cast<T*>(c), columns);
  } else {
    cblas_dgemm(CblasRowMajor, left, right, rows, columns, depth, 1, static_cast<const T*>(a), lda,
                static_cast<const T*>(b), ldb, 0, static_cast<T*>(c), columns);
  }
}

template <class T>
std::function<void()> run_of(const Operation& of) {
  const auto& s = of.sizes;
  if (of.name == "product") {  // [batch, in] x [out, in]
    return [&of, s] { gemm<T>(false, true, s[0], s[2], s[1], of.in[0], of.in[1], of.out[0]); };
  }
  if (of.name == "product data gradient") {
    return [&of, s] { gemm<T>(false, false, s[0], s[1], s[2], of.in[0], of.in[1], of.out[0]); };
  }
  if (of.name == "product weight gradient") {
    return [&of, s] { gemm<T>(true, false, s[2], s[1], s[0], of.in[0], of.in[1], of.out[0]); };
  }
  if constexpr (sizeof(T) == 4) {
    const auto count = s.empty() ? 0 : static_cast<blasint>(s[0]);
    if (of.name == "add in place" || of.name == "sgd") {
      return [&of, count, factor = of.name == "sgd" ? -1e-4F : 1.0F] {
        cblas_saxpy(count, factor, static_cast<const float*>(of.in[0]), 1, static_cast<float*>(of.out[0]), 1);
      };
    }
    if (of.name == "norm") {
      return [&of, count] {
        volatile float norm = cblas_snrm2(count, static_cast<const float*>(of.in[0]), 1);
        static_cast<void>(norm);
      };
    }
    if (of.name == "copy transposed") {
      return [&of, s] {
        const auto rows = static_cast<blasint>(s[0]);
        const auto columns = static_cast<blasint>(s[1]);
        cblas_somatcopy(CblasRowMajor, CblasTrans, rows, columns, 1, static_cast<const float*>(of.in[0]), columns,
                        static_cast<float*>(of.out[0]), rows);
      };
    }
  }
  return {};
}

}  // namespace

void find_openblas(const Operation& operation, std::vector<Peer>& peers) {
  static const bool one_thread = (openblas_set_num_threads(1), true);
  static_cast<void>(one_thread);
  std::function<void()> run;
  if (operation.dtype == "f32") {
    run = run_of<float>(operation);
  } else if (operation.dtype == "f64") {
    run = run_of<double>(operation);
  }
  if (run) {
    peers.push_back({"OpenBLAS", std::move(run)});
  }
}

}  // namespace bench::kernel

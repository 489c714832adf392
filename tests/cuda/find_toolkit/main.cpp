#include <cstdio>

#include <cublasLt.h>
#include <cuda_runtime.h>

// Starts only where the libraries that it was linked to are found; no GPU is needed.
int main() {
  int runtime = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) {
    return 1;
  }
  std::printf("CUDA %d, cuBLASLt %zu\n", runtime, cublasLtGetVersion());
  return 0;
}

#include <cstdio>

#include <cublasLt.h>
#include <cuda_runtime.h>

// Starts only if its linked libraries are found. Needs no GPU.
int main() {
  int runtime = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) {
    return 1;
  }
  std::printf("CUDA %d, cuBLASLt %zu\n", runtime, cublasLtGetVersion());
  return 0;
}

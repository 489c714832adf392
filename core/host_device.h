#pragma once

// TANDEM_HD marks what both a CPU and a GPU compute: nvcc compiles it for both.
#if defined(__CUDACC__)
#define TANDEM_HD __host__ __device__
#else
#define TANDEM_HD
#endif

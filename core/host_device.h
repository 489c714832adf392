#pragma once

// TANDEM_HD marks functions that run on both CPUs and GPUs: nvcc compiles them for both.
#if defined(__CUDACC__)
#define TANDEM_HD __host__ __device__
#else
#define TANDEM_HD
#endif

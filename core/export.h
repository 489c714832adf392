#pragma once

// Marks the symbols that the shared library exports; all others are hidden.
#define TANDEM_API __attribute__((visibility("default")))

// Marks functions that run on both CPUs and GPUs: nvcc compiles them for both.
#if defined(__CUDACC__)
#define TANDEM_HD __host__ __device__
#else
#define TANDEM_HD
#endif

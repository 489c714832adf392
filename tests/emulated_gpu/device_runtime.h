#pragma once

#include <cstdint>
#include <functional>
#include <source_location>

#include <cuda_runtime.h>

// The functions of the library that device.h calls.

namespace emulated_gpu {

/// The block's dynamic shared memory, 256-byte aligned. Replaces `extern __shared__`, which C++ cannot express.
void* dynamic_shared();

namespace detail {

using Location = std::source_location;

enum class Barrier { kPlain, kCount, kAnd, kOr };
// All threads of the block meet here. Returns how many had a non-zero predicate, or whether all or any had.
int barrier(Barrier kind, int predicate, const Location& where);

enum class Warp { kSync, kShuffle, kShuffleXor, kShuffleUp, kShuffleDown, kBallot };
// The lanes of `mask` meet here. A shuffle returns the value of the lane that `lane` and `width` select.
std::uint64_t warp(Warp kind, unsigned mask, std::uint64_t value, int lane, int width, const Location& where);

// Lets other threads of the block run first.
void yield();
// A fence of the calling thread. Accesses before a fence and an atomic access to a cell are ordered before accesses of
// another thread after its own atomic access to that cell and a fence. With `only_block`, that holds for threads of one
// block and cells of shared memory.
void fence(bool only_block);
// Ends the kernel with this error.
[[noreturn]] void fail_kernel(cudaError_t error, const char* why);
[[noreturn]] void assertion_failed(const char* condition, const char* file, unsigned line, const char* function);

// __fdividef(), __expf(), rsqrt().
float fast_quotient(float x, float y);
float fast_exp(float x);
float reciprocal_root(float x);
double reciprocal_root(double x);

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> body);

}  // namespace detail

}  // namespace emulated_gpu

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

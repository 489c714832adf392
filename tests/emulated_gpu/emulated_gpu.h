#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>

// What tests and emulated libraries may ask of the emulated GPU, beyond the CUDA runtime's functions.

namespace emulated_gpu {

/// Bytes of `device` that are allocated now, as they were asked for.
std::size_t allocated_bytes(int device);

/// Tasks of all streams that are queued and have not run.
std::size_t pending_tasks();

/// The next kernel whose name contains `kernel_name` fails with `error` when it runs; every later call returns it.
void fail_next(cudaError_t error, const char* kernel_name);

/// Forgets errors, planned ones too, and everything queued. Memory, streams and events stay.
void reset();

/// A kernel of an emulated library: queued on `stream`, captured as a kernel node, run with the device's memory open.
/// The result is cudaSuccess or what a launch would have given.
cudaError_t enqueue(cudaStream_t stream, const char* name, std::function<void()> task);

}  // namespace emulated_gpu

#pragma once

#include <cstddef>
#include <functional>

#include <cuda_runtime.h>

// What tests and emulated libraries may ask of the emulated GPU, beyond the CUDA runtime's functions.
//
// Environment, read once:
//   EMULATED_GPU_COUNT    devices, 2 unless set
//   EMULATED_GPU_MEMORY   bytes of each, with k, M or G; 1G unless set
//   EMULATED_GPU_SEED     picks orders that nobody may rely on: of blocks, of threads, of streams, of a graph's nodes;
//                         0 is the ascending order, 1 unless set. The same seed gives the same orders.
//   EMULATED_GPU_PEERS=0  no device reaches another's memory
//
// Stricter than a GPU: streams run only when somebody waits or asks, the default stream is refused, threads must meet
// at the same barrier, masks must name lanes that are there, device memory cannot be touched from outside of kernels.
// Not seen: the size of static shared memory, __launch_bounds__, pageable host memory in a kernel, data races that no
// order of whole threads shows. Not there: cooperative launches, clusters, managed memory, textures, symbols.

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

/// The same for what waits for other devices, as a collective's kernel does: it runs once `ready` says so, which is
/// asked again and again, with the runtime locked. The memory of all devices is open to it. Not in a capture.
cudaError_t enqueue_when(cudaStream_t stream, const char* name, std::function<bool()> ready,
                         std::function<void()> task);

}  // namespace emulated_gpu

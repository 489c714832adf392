#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime.h>

// Functions of the emulated GPU for tests and emulated libraries, beyond those of the CUDA runtime.
//
// Environment variables, read once:
//   EMULATED_GPU_COUNT    number of devices; default 2
//   EMULATED_GPU_MEMORY   bytes per device, with k, M or G; default 1G
//   EMULATED_GPU_SEED     selects orders that programs must not rely on: of blocks, of threads, of streams, of
//                         a graph's nodes. 0 is the ascending order; default 1. Equal seeds give equal orders.
//   EMULATED_GPU_PEERS=0  no device can access another's memory
//   EMULATED_GPU_ULPS     units in the last place by which a kernel's exp(), log(), sin() and so on may differ from the
//                         C library's; default 0
//   EMULATED_LIBRARIES_HOSTILE  a seed: cuBLASLt and cuDNN behave as badly as their documentation allows. They refuse
//                         or offer less, by problem, use several kernels, and leave garbage in the workspace, before
//                         the last kernel also in the results. Default 0: they are friendly
//   EMULATED_GPU_RACES=1  data races in kernels are reported
//
// Stricter than a GPU: streams run only when a thread waits for them or queries them, the default stream is refused,
// threads must meet at the same barrier, masks must name lanes that are present, and device memory cannot be touched
// outside of kernels.
// Unchecked: the size of static shared memory, __launch_bounds__, pageable host memory in a kernel.
// Unsupported: cooperative launches, clusters, managed memory, textures, symbols.

namespace emulated_gpu {

/// Bytes of `device` that are allocated now, counted as requested.
std::size_t allocated_bytes(int device);

/// Notes the names of the kernels that run while it lives, those of graphs and of emulated libraries too. Only one may
/// live at a time.
class KernelLog {
 public:
  KernelLog();
  ~KernelLog();
  KernelLog(const KernelLog&) = delete;
  KernelLog& operator=(const KernelLog&) = delete;
  std::vector<std::string> names() const;
};

/// Number of queued tasks in all streams that have not run.
std::size_t pending_tasks();

/// Makes the next kernel whose name contains `kernel_name` fail with `error` when it runs. Every later call returns the
/// error.
void fail_next(cudaError_t error, const char* kernel_name);

/// From now on, the calls named `call` ("cudaLaunchKernel", "cudaGraphInstantiate", "cublasLtCreate" ...) fail for want
/// of memory unless the current device has `bytes` free, like calls of CUDA that allocate memory of their own. Zero
/// bytes end this.
void need_memory(const char* call, std::size_t bytes);
/// Whether the call named `call` fails so now. For emulated libraries.
bool lacks_memory(const char* call);

/// Sets EMULATED_GPU_ULPS.
void move_results(int most);
/// Sets EMULATED_LIBRARIES_HOSTILE. Plans made before are not asked about again.
void be_hostile(std::uint64_t seed);
/// From now on, the emulated libraries say that they don't support the call of this name ("cublasLtMatmul"). An empty
/// name ends this.
void refuse_calls(const char* call);
/// Whether that is so now. For emulated libraries.
bool refuses_call(const char* call);

/// Whether kernels that run from now on report data races. Initially EMULATED_GPU_RACES.
void find_races(bool on);

/// Clears errors, planned ones too, and everything queued. Memory, streams and events remain.
void reset();

/// Queues a kernel of an emulated library on `stream`. A capture records it as a kernel node. It runs with the device's
/// memory open. Returns cudaSuccess, or the error that a launch would have returned.
cudaError_t enqueue(cudaStream_t stream, const char* name, std::function<void()> task);

/// Like enqueue(), for a task that waits for other devices, such as a collective's kernel. The task runs once `ready`
/// returns true; `ready` is polled with the runtime locked. The memory of all devices is open to the task. Not allowed
/// in a capture.
cudaError_t enqueue_when(cudaStream_t stream, const char* name, std::function<bool()> ready,
                         std::function<void()> task);

}  // namespace emulated_gpu

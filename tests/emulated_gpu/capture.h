#pragma once

#include <memory>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#include "runtime.h"

// Captures of streams, and the resulting graphs.

struct CUgraphNode_st {
  emulated_gpu::detail::Task task;
  std::vector<std::size_t> before;  // indices of its dependencies
};

struct CUgraph_st {
  std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
};

struct CUgraphExec_st {
  std::shared_ptr<const std::vector<std::shared_ptr<CUgraphNode_st>>> nodes;
  std::shared_ptr<emulated_gpu::detail::Marker> last_launch;
};

namespace emulated_gpu::detail {

struct Capture {
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  CUstream_st* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  unsigned long long id = 0;
  bool invalidated = false;
};

// Adds a node to the stream's capture, after the last work of the stream.
cudaError_t add_node(CUstream_st& stream, Task task);
// For calls that would disturb captures. Returns cudaSuccess, or an error after invalidating these captures.
cudaError_t forbid_in_capture(Runtime& runtime);
cudaError_t forbid_in_capture(const CUstream_st& stream);
cudaError_t forbid_in_capture(const CUevent_st& event);
cudaError_t forbid_in_capture(const Device& device);

}  // namespace emulated_gpu::detail

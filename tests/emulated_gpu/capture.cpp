#include "capture.h"

#include <algorithm>

using emulated_gpu::detail::call;
using emulated_gpu::detail::Capture;
using emulated_gpu::detail::Lock;
using emulated_gpu::detail::Runtime;

namespace emulated_gpu::detail {

namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

cudaError_t break_off(Capture& capture) {
  capture.invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

// Marks the nodes that `tail` depends on, including `tail`.
std::vector<bool> reached(const CUgraph_st& graph, std::vector<std::size_t> tail) {
  std::vector<bool> found(graph.nodes.size(), false);
  while (!tail.empty()) {
    const std::size_t node = tail.back();
    tail.pop_back();
    if (!found[node]) {
      found[node] = true;
      tail.insert(tail.end(), graph.nodes[node]->before.begin(), graph.nodes[node]->before.end());
    }
  }
  return found;
}

}  // namespace

cudaError_t add_node(CUstream_st& stream, Task task) {
  Capture& capture = *stream.capture;
  if (capture.invalidated) {
    return cudaErrorStreamCaptureInvalidated;
  }
  auto node = std::make_shared<CUgraphNode_st>();
  node->task = std::move(task);
  node->before = stream.tail;
  stream.tail = {capture.graph->nodes.size()};
  capture.graph->nodes.push_back(std::move(node));
  return cudaSuccess;
}

// Follows the documentation of cudaThreadExchangeStreamCaptureMode().
cudaError_t forbid_in_capture(Runtime& runtime) {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : runtime.captures) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool hit = own ? thread_mode != cudaStreamCaptureModeRelaxed && capture->mode != cudaStreamCaptureModeRelaxed
                         : thread_mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (hit) {
      error = break_off(*capture);
    }
  }
  return error;
}

cudaError_t forbid_in_capture(const CUstream_st& stream) {
  return stream.capture == nullptr ? cudaSuccess : break_off(*stream.capture);
}

cudaError_t forbid_in_capture(const CUevent_st& event) {
  if (!event.captured) {
    return cudaSuccess;
  }
  if (const auto capture = event.capture.lock(); capture != nullptr) {
    break_off(*capture);
  }
  return cudaErrorCapturedEvent;
}

cudaError_t forbid_in_capture(const Device& device) {
  cudaError_t error = cudaSuccess;
  for (const auto& stream : device.streams) {
    const cudaError_t own = forbid_in_capture(*stream);
    error = own != cudaSuccess ? own : error;
  }
  return error;
}

}  // namespace emulated_gpu::detail

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call([&](Runtime& runtime, Lock&) {
    static unsigned long long next_id = 1;
    if (const cudaError_t error = runtime.check(stream); error != cudaSuccess) {
      return error;
    }
    if (stream->capture != nullptr) {
      return cudaErrorIllegalState;
    }
    auto capture = std::make_shared<Capture>();
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->id = next_id++;
    stream->tail.clear();
    stream->capture = capture;
    runtime.captures.insert(std::move(capture));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call([&](Runtime& runtime, Lock&) {
    if (const cudaError_t error = runtime.check(stream); error != cudaSuccess) {
      return error;
    }
    if (graph == nullptr) {
      return cudaErrorInvalidValue;
    }
    *graph = nullptr;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (capture == nullptr) {
      return cudaErrorIllegalState;
    }
    if (capture->origin != stream) {
      capture->invalidated = true;
      return cudaErrorStreamCaptureUnmatched;
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    const auto joined = emulated_gpu::detail::reached(*capture->graph, stream->tail);
    bool all_joined = true;
    for (const auto& device : runtime.devices) {
      for (const auto& other : device->streams) {
        if (other->capture == capture) {
          for (const std::size_t node : other->tail) {
            all_joined = all_joined && joined[node];
          }
          other->capture = nullptr;
          other->tail.clear();
        }
      }
    }
    runtime.captures.erase(capture);
    if (capture->invalidated) {
      return cudaErrorStreamCaptureInvalidated;
    }
    if (!all_joined) {
      return cudaErrorStreamCaptureUnjoined;
    }
    *graph = capture->graph.release();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  return call([&](Runtime& runtime, Lock&) {
    if (const cudaError_t error = runtime.check(stream); error != cudaSuccess) {
      return error;
    }
    if (nodes != nullptr || edges != nullptr || count != nullptr) {
      return cudaErrorNotSupported;
    }
    const Capture* capture = stream->capture.get();
    *status = capture == nullptr     ? cudaStreamCaptureStatusNone
              : capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                     : cudaStreamCaptureStatusActive;
    if (id != nullptr && capture != nullptr) {
      *id = capture->id;
    }
    if (graph != nullptr && capture != nullptr) {
      *graph = capture->graph.get();
    }
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, emulated_gpu::detail::thread_mode);
  return cudaSuccess;
}

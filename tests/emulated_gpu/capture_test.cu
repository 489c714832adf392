#include <array>
#include <functional>
#include <thread>

#include "test_support.h"

namespace {

__global__ void increment(int* value) { *value += 1; }
__global__ void multiply(int* value, int factor) { *value *= factor; }

void begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
  EXPECT_CUDA(cudaStreamBeginCapture(stream, mode));
}

// Ends the capture that has begun and instantiates its graph.
class Graph {
 public:
  explicit Graph(cudaStream_t stream) {
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph_));
    EXPECT_CUDA(cudaGraphInstantiate(&exec_, graph_, 0));
  }
  ~Graph() {
    EXPECT_CUDA(cudaGraphExecDestroy(exec_));
    EXPECT_CUDA(cudaGraphDestroy(graph_));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  cudaGraphExec_t exec() const { return exec_; }
  std::vector<cudaGraphNodeType> types() const {
    std::size_t count = 0;
    EXPECT_CUDA(cudaGraphGetNodes(graph_, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    EXPECT_CUDA(cudaGraphGetNodes(graph_, nodes.data(), &count));
    std::vector<cudaGraphNodeType> types;
    for (const cudaGraphNode_t node : nodes) {
      EXPECT_CUDA(cudaGraphNodeGetType(node, &types.emplace_back()));
    }
    return types;
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

cudaError_t end(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  EXPECT_EQ(graph == nullptr, error != cudaSuccess);
  if (graph != nullptr) {
    EXPECT_CUDA(cudaGraphDestroy(graph));
  }
  return error;
}

TEST(Capture, IsReplayed) {
  const Array<int> value(std::vector<int>{1});
  const Array<int> copy(1);
  const Stream stream;
  begin(stream);
  EXPECT_CUDA(launch(stream, 1, 1, 0, increment, value.data()));
  EXPECT_CUDA(cudaMemcpyAsync(copy.data(), value.data(), 4, cudaMemcpyDeviceToDevice, stream));
  EXPECT_CUDA(cudaMemsetAsync(value.data(), 0, 4, stream));
  int* data = value.data();
  EXPECT_CUDA(emulated_gpu::enqueue(stream, "library", [data] { *data += 3; }));
  const Graph graph(stream);
  EXPECT_EQ(graph.types(), (std::vector{cudaGraphNodeTypeKernel, cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeMemset,
                                        cudaGraphNodeTypeKernel}));
  EXPECT_EQ(emulated_gpu::pending_tasks(), 0U);
  EXPECT_CUDA(cudaGraphUpload(graph.exec(), stream));
  EXPECT_CUDA(cudaGraphLaunch(graph.exec(), stream));
  EXPECT_CUDA(cudaGraphLaunch(graph.exec(), stream));
  EXPECT_EQ(value.values()[0], 1);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(copy.values()[0], 4);
  EXPECT_EQ(value.values()[0], 3);
}

TEST(Capture, ForksAndJoins) {
  const Array<int> value(std::vector<int>{1});
  const Array<int> other_value(std::vector<int>{1});
  const Stream stream;
  const Stream other;
  const Event fork;
  const Event join;
  begin(stream, cudaStreamCaptureModeGlobal);
  EXPECT_CUDA(launch(stream, 1, 1, 0, increment, value.data()));
  EXPECT_CUDA(cudaEventRecord(fork, stream));
  EXPECT_CUDA(cudaStreamWaitEvent(other, fork, 0));
  cudaStreamCaptureStatus status{};
  EXPECT_CUDA(cudaStreamIsCapturing(other, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_CUDA(launch(other, 1, 1, 0, increment, other_value.data()));
  EXPECT_CUDA(launch(other, 1, 1, 0, multiply, value.data(), 3));
  EXPECT_CUDA(cudaEventRecord(join, other));
  EXPECT_CUDA(cudaStreamWaitEvent(stream, join, 0));
  EXPECT_CUDA(launch(stream, 1, 1, 0, increment, value.data()));
  const Graph graph(stream);
  EXPECT_CUDA(cudaStreamIsCapturing(other, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_CUDA(cudaGraphLaunch(graph.exec(), other));
  EXPECT_CUDA(cudaGraphLaunch(graph.exec(), stream));  // runs after the previous launch, whatever the stream
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(value.values()[0], 25);
  EXPECT_EQ(other_value.values()[0], 3);
  EXPECT_CUDA(cudaDeviceSynchronize());
}

TEST(Capture, OfAForkThatIsNotJoinedFails) {
  const Array<int> value(std::vector<int>{1});
  const Stream stream;
  const Stream other;
  const Event fork;
  begin(stream);
  EXPECT_CUDA(cudaEventRecord(fork, stream));
  EXPECT_CUDA(cudaStreamWaitEvent(other, fork, 0));
  EXPECT_CUDA(launch(other, 1, 1, 0, increment, value.data()));
  EXPECT_EQ(end(stream), cudaErrorStreamCaptureUnjoined);
  EXPECT_CUDA(cudaStreamSynchronize(other));
}

TEST(Capture, IsInvalidatedByWhatItCannotContain) {
  const Stream stream;
  void* memory = nullptr;
  const auto attempts = std::vector<std::function<cudaError_t()>>{
      [&] { return cudaStreamSynchronize(stream); },
      [&] { return cudaStreamQuery(stream); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaMalloc(&memory, 4); },
      [&] { return cudaFree(nullptr); },
      [&] { return cudaMallocAsync(&memory, 4, stream); },
      [&] { return cudaMallocHost(&memory, 4); },
      [&] { return cudaMemset(nullptr, 0, 4); },
  };
  for (const auto& attempt : attempts) {
    begin(stream);
    EXPECT_EQ(attempt(), cudaErrorStreamCaptureUnsupported);
    cudaStreamCaptureStatus status{};
    EXPECT_CUDA(cudaStreamIsCapturing(stream, &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ(cudaMemsetAsync(nullptr, 0, 0, stream), cudaSuccess);
    EXPECT_EQ(end(stream), cudaErrorStreamCaptureInvalidated);
    EXPECT_CUDA(cudaStreamSynchronize(stream));
  }
}

TEST(Capture, ChecksEvents) {
  const Stream stream;
  const Stream other;
  const Event event;
  begin(stream);
  EXPECT_CUDA(cudaEventRecord(event, stream));
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorCapturedEvent);
  EXPECT_EQ(end(stream), cudaErrorStreamCaptureInvalidated);

  EXPECT_CUDA(cudaEventRecord(event, other));
  begin(stream);
  EXPECT_EQ(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(stream), cudaErrorStreamCaptureInvalidated);

  begin(stream);
  begin(other);
  EXPECT_CUDA(cudaEventRecord(event, other));
  EXPECT_EQ(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(end(stream), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end(other), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end(other), cudaErrorIllegalState);
}

TEST(Capture, ModesSayWhatOthersMayDo) {
  const Stream stream;
  const auto elsewhere = [](cudaStreamCaptureMode mode) {
    cudaError_t error = cudaSuccess;
    std::thread([&] {
      EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
      void* memory = nullptr;
      error = cudaMalloc(&memory, 4);
      if (error == cudaSuccess) {
        EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
        mode = cudaStreamCaptureModeRelaxed;
        EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
        EXPECT_CUDA(cudaFree(memory));
      }
    }).join();
    return error;
  };
  begin(stream, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(elsewhere(cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(elsewhere(cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(stream), cudaErrorStreamCaptureInvalidated);

  begin(stream, cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(elsewhere(cudaStreamCaptureModeGlobal), cudaSuccess);
  std::thread([&] { EXPECT_EQ(end(stream), cudaErrorStreamCaptureWrongThread); }).join();
  EXPECT_CUDA(end(stream));

  begin(stream, cudaStreamCaptureModeRelaxed);
  void* memory = nullptr;
  EXPECT_CUDA(cudaMalloc(&memory, 4));
  EXPECT_CUDA(cudaFree(memory));
  EXPECT_CUDA(end(stream));
}

TEST(Capture, KeepsArgumentsAndIndependentNodesMayRunInAnyOrder) {
  const Array<int> value(std::vector<int>{0});
  std::array<Stream, 5> streams;
  const Event fork;
  std::array<Event, 5> joins;
  const Stream stream;
  begin(stream);
  EXPECT_CUDA(cudaEventRecord(fork, stream));
  for (std::size_t i = 0; i < streams.size(); ++i) {
    EXPECT_CUDA(cudaStreamWaitEvent(streams[i], fork, 0));
    EXPECT_CUDA(launch(streams[i], 1, 1, 0, increment, value.data()));
    EXPECT_CUDA(cudaEventRecord(joins[i], streams[i]));
    EXPECT_CUDA(cudaStreamWaitEvent(stream, joins[i], 0));
  }
  EXPECT_CUDA(launch(stream, 1, 1, 0, multiply, value.data(), 2));
  const Graph graph(stream);
  EXPECT_CUDA(cudaGraphLaunch(graph.exec(), stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(value.values()[0], 10);
}

}  // namespace

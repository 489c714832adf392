#include <tandem/kernels/cuda/tuner.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/cuda/gpu.h>
#include <tandem/core/cuda/runtime.h>

namespace tandem::inline v0::kernels::gpu {

namespace {

constexpr int kRuns = 5;
// More than twice the largest L2 cache.
constexpr std::size_t kFlush = std::size_t{128} << 20;
constexpr std::size_t kLeastFlush = std::size_t{1} << 20;
constexpr std::int64_t kMemoryAlignment = 256;
constexpr double kLeastTime = 1e-3;  // 0 would say that nobody has measured

using cuda::require;

// A graph that is made while this lives.
class Capturing {
 public:
  explicit Capturing(cudaStream_t stream) : lock_(cuda::capture_mutex()), stream_(stream) {
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  }
  ~Capturing() {
    if (!ended_ && cudaStreamEndCapture(stream_, &graph_) != cudaSuccess) {
      cudaGetLastError();
    }
    if (graph_ != nullptr) {
      cudaGraphDestroy(graph_);
    }
  }
  cudaGraph_t end() {
    ended_ = true;
    require(cudaStreamEndCapture(stream_, &graph_), "cudaStreamEndCapture");
    return graph_;
  }

 private:
  std::lock_guard<cuda::CaptureMutex> lock_;
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  bool ended_ = false;
};

}  // namespace

Tuner::Tuner(const Queue& queue, const ResultMemory& result, std::size_t workspace)
    : stream_(Device(DeviceType::cuda, queue.gpu().index)),
      context_{.device = stream_.device(), .scratch = {}},
      scope_(stream_),
      queue_(context_),
      offset_(result.alignment % kMemoryAlignment),
      flush_bytes_(kFlush) {
  const std::size_t bytes = result.bytes + kMemoryAlignment;
  cuda::Event before(stream_.device());
  require(cudaEventRecord(before.handle(), queue.stream()), "cudaEventRecord");
  stream_.wait_event(before);
  // Nothing may be allocated while a run is captured. A smaller workspace lies in this one.
  queue_.workspace(workspace);
  result_ = allocate(bytes);
  check<OutOfMemory>(result_ != nullptr, "cuda:{}: no memory to measure kernels", queue.gpu().index);
  while (flush_bytes_ >= kLeastFlush && (flush_ = allocate(flush_bytes_)) == nullptr) {
    flush_bytes_ /= 2;
  }
  // Kernels that accumulate need numbers to add to: NaN would change the measured time.
  require(cudaMemsetAsync(result_, 0, bytes, stream_.handle()), "cudaMemsetAsync");
}

Tuner::~Tuner() {
  for (void* memory : {result_, flush_}) {
    if (memory != nullptr) {
      cudaFreeAsync(memory, stream_.handle());
    }
  }
}

void* Tuner::allocate(std::size_t bytes) const {
  void* memory = nullptr;
  const cudaError_t status = cudaMallocAsync(&memory, bytes, stream_.handle());
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  require(status, "cudaMallocAsync");
  return memory;
}

std::optional<int> Tuner::count_kernels(Run run) {
  Capturing capturing(stream_.handle());
  if (!run(queue_, result())) {
    return std::nullopt;
  }
  const cudaGraph_t graph = capturing.end();
  std::size_t count = 0;
  require(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) {
    require(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  }
  int kernels = 0;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    require(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    kernels += type == cudaGraphNodeTypeKernel ? 1 : 0;
  }
  return kernels;
}

std::optional<Measured> Tuner::measure(Run run) {
  // The warm-up comes first: it loads the code, which had better not happen in a capture.
  const std::optional<int> kernels = warm_up(run) ? count_kernels(run) : std::nullopt;
  const std::optional<double> time = kernels ? median_us(run) : std::nullopt;
  return time ? std::optional<Measured>({.kernels = *kernels, .time_us = *time}) : std::nullopt;
}

std::optional<double> Tuner::time_us(Run run) { return warm_up(run) ? median_us(run) : std::nullopt; }

std::optional<double> Tuner::median_us(Run run) {
  struct Span {
    cuda::Event begin, end;
  };
  std::vector<Span> spans;
  for (int i = 0; i < kRuns; ++i) {
    spans.push_back({cuda::Event(stream_.device(), true), cuda::Event(stream_.device(), true)});
  }
  for (Span& span : spans) {  // the host is ahead of the GPU: its own time is hidden behind the flush
    if (flush_ != nullptr) {
      require(cudaMemsetAsync(flush_, 0, flush_bytes_, stream_.handle()), "cudaMemsetAsync");
    }
    span.begin.record(stream_);
    if (!run(queue_, result())) {
      return std::nullopt;
    }
    span.end.record(stream_);
  }
  // Stream::synchronize() would also throw the value errors of earlier ops. Those belong to the caller that waits for
  // the ops.
  cuda::wait_for(stream_.device().index, stream_.handle(), "tuning");
  std::array<double, kRuns> times{};
  for (std::size_t i = 0; i < times.size(); ++i) {
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, spans[i].begin.handle(), spans[i].end.handle()),
            "cudaEventElapsedTime");
    times[i] = std::max(kLeastTime, 1e3 * static_cast<double>(milliseconds));
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

}  // namespace tandem::inline v0::kernels::gpu

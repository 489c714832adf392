#include <tandem/kernels/cuda/matmul/tuner.h>

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
constexpr double kLeastTime = 1e-3;  // 0 would say that nobody has measured

using cuda::require;

std::size_t bytes_of_result(const PlanKey& key) {
  const std::int64_t last = (key.batch - 1) * key.d_step + (key.m - 1) * key.ldd + key.n - 1;
  return static_cast<std::size_t>(last + 1) * item_size(static_cast<DType>(key.type));
}

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

Tuner::Tuner(const Queue& queue, const PlanKey& key, std::size_t workspace)
    : stream_(Device(DeviceType::cuda, queue.gpu().index)),
      context_{.device = stream_.device(), .scratch = {}},
      scope_(stream_),
      queue_(context_),
      offset_(key.d_align % kMostAlignment),
      flush_bytes_(kFlush) {
  const std::size_t bytes = bytes_of_result(key);
  cuda::Event before(stream_.device());
  require(cudaEventRecord(before.handle(), queue.stream()), "cudaEventRecord");
  stream_.wait_event(before);
  // Nothing may be allocated while a run is captured. A smaller workspace lies in this one.
  queue_.workspace(workspace);
  result_ = allocate(bytes + kMostAlignment);
  check<OutOfMemory>(result_ != nullptr, "cuda:{}: no memory to measure a matrix product", queue.gpu().index);
  while (flush_bytes_ >= kLeastFlush && (flush_ = allocate(flush_bytes_)) == nullptr) {
    flush_bytes_ /= 2;
  }
  // Products that accumulate need numbers to add to: NaN would change the measured time.
  require(cudaMemsetAsync(result_, 0, bytes + kMostAlignment, stream_.handle()), "cudaMemsetAsync");
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
  if (!run(queue_, static_cast<std::byte*>(result_) + offset_)) {
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
  void* out = static_cast<std::byte*>(result_) + offset_;
  // The warm-up comes first: it loads the code, which had better not happen in a capture.
  if (!run(queue_, out)) {
    return std::nullopt;
  }
  const std::optional<int> kernels = count_kernels(run);
  if (!kernels) {
    return std::nullopt;
  }
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
    if (!run(queue_, out)) {
      return std::nullopt;
    }
    span.end.record(stream_);
  }
  // Stream::synchronize() would also throw the value errors of earlier ops. Those belong to the caller that waits for
  // the ops.
  cuda::wait_for(stream_.device().index, stream_.handle(), "matmul tuning");
  std::array<double, kRuns> times{};
  for (std::size_t i = 0; i < times.size(); ++i) {
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, spans[i].begin.handle(), spans[i].end.handle()),
            "cudaEventElapsedTime");
    times[i] = std::max(kLeastTime, 1e3 * static_cast<double>(milliseconds));
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return Measured{.kernels = *kernels, .time_us = times[kRuns / 2]};
}

}  // namespace tandem::inline v0::kernels::gpu

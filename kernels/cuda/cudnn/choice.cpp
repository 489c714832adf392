#include <tandem/kernels/cuda/cudnn/choice.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

#include <tandem/core/cuda_stream.h>
#include <tandem/kernels/cuda/cudnn/session.h>

namespace tandem::inline v0::kernels::gpu::cudnn {

namespace {

constinit thread_local bool timing = false;

class TimingScope {
 public:
  TimingScope() { timing = true; }
  ~TimingScope() { timing = false; }
  TimingScope(const TimingScope&) = delete;
  TimingScope& operator=(const TimingScope&) = delete;
};

/// Memory for results that nobody reads.
class Scratch {
 public:
  Scratch(std::size_t bytes, CUstream_st* stream) : stream_(stream) {
    if (cudaMallocAsync(&memory_, bytes, stream) != cudaSuccess) {
      cudaGetLastError();
      memory_ = nullptr;
      return;
    }
    cudaMemsetAsync(memory_, 0, bytes, stream);  // what is accumulated to is a number
  }
  ~Scratch() {
    if (memory_ != nullptr) {
      cudaFreeAsync(memory_, stream_);
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* memory() const noexcept { return memory_; }

 private:
  CUstream_st* stream_;
  void* memory_ = nullptr;
};

struct Winners {
  std::mutex mutex;
  std::map<std::pair<int, ShapeClass>, bool> cudnn;
  std::map<int, cuda::Stream> streams;  // kept: the kernels' scratch memory belongs to them
};

Winners& winners() {
  static auto* all = new Winners;  // outlives every thread
  return *all;
}

/// The least milliseconds of some runs, the first of which does not count.
template <class Run>
float milliseconds(const cuda::Stream& stream, Run&& run) {
  constexpr int kRuns = 6;
  cuda::Event begin(stream.device(), true);
  cuda::Event end(stream.device(), true);
  float least = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    begin.record(stream);
    run();
    end.record(stream);
    const auto time = static_cast<float>(begin.elapsed_time(end));
    least = i == 0 ? least : std::min(least, time);
  }
  return least;
}

}  // namespace

bool is_timing() noexcept { return timing; }

bool cudnn_is_faster(const Queue& queue, Context& context, const ShapeClass& shape_class, const Trial& trial) {
  Winners& all = winners();
  const std::lock_guard lock(all.mutex);
  const std::pair key(queue.gpu().index, shape_class);
  if (const auto found = all.cudnn.find(key); found != all.cudnn.end()) {
    return found->second;
  }
  if (queue.is_capturing()) {
    return false;
  }
  const cuda::Stream& stream = all.streams.try_emplace(queue.gpu().index, context.device).first->second;
  stream.wait_stream(cuda::current_stream(context.device));
  const cuda::StreamScope scope(stream);
  const TimingScope timing_scope;
  const Queue other(context);
  const Scratch out(trial.out_bytes, stream.handle());
  if (out.memory() == nullptr) {
    return false;
  }
  bool there = trial.cudnn(other, out.memory());
  if (there) {
    const float own = milliseconds(stream, [&] { trial.own(out.memory()); });
    there = milliseconds(stream, [&] { trial.cudnn(other, out.memory()); }) < own;
  }
  return all.cudnn.emplace(key, there).first->second;
}

}  // namespace tandem::inline v0::kernels::gpu::cudnn

#include <tandem/graph/gpu_graph.h>

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/cuda/gpu.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/launch/step.h>
#include <tandem/tensor/storage.h>

namespace tandem::inline v0::graph {

namespace {

class CapturedGraph final : public GpuGraph {
 public:
  explicit CapturedGraph(Device device)
      : device_(device),
        stream_(cuda::current_stream(device_)),
        states_(detail::Storage::allocate_unrecorded(kernels::StepSlots::kMost * sizeof(kernels::StepState), device_)) {
  }

  void capture(core::FunctionRef<void(NoteWorks)> launches) {
    kernels::Context& context = kernels::context_for(device_);
    const cuda::GpuScope scope(device_.index);
    slots_.device = reinterpret_cast<kernels::StepState*>(states_->data());
    record(context, launches);
    workspace_ = context.gpu_state;
    cuda::require_room(device_.index, "cudaGraphInstantiate", [&] {
      return cudaGraphInstantiate(&executable_, graph_, cudaGraphInstantiateFlagUseNodePriority);
    });
    cuda::require_room(device_.index, "cudaGraphUpload",
                       [&] { return cudaGraphUpload(executable_, stream_.handle()); });
    values_.resize(slots_.slots.size());
  }

  ~CapturedGraph() override {
    if (executable_ != nullptr) {
      cudaGraphExecDestroy(executable_);
    }
    if (graph_ != nullptr) {
      cudaGraphDestroy(graph_);
    }
  }

  void note_works(std::size_t works) override {
    for (std::size_t i = 0; i < slots_.slots.size(); ++i) {
      if (slots_.slots[i].works == works) {
        values_[i] = *slots_.slots[i].host;
      }
    }
  }

  void launch() override {
    kernels::Context& context = kernels::context_for(device_);
    const kernels::Queue queue(context);
    if (!values_.empty()) {
      kernels::write_states(queue, slots_.device, values_);
    }
    cuda::note_launch("captured step");
    cuda::require_room(device_.index, "cudaGraphLaunch",
                       [&] { return cudaGraphLaunch(executable_, stream_.handle()); });
  }

  bool on_current_stream() const override { return cuda::current_stream(device_) == stream_; }

 private:
  // Captures on a private stream, so launches of other threads do not become part of the graph. Kernels in the graph
  // keep the priority of this stream, regardless of the stream that runs the graph.
  void record(kernels::Context& context, core::FunctionRef<void(NoteWorks)> launches) {
    const cuda::Stream own(device_, stream_.priority());
    const cuda::StreamScope scope(own);
    slots_.stream = stream_;
    const std::lock_guard lock(cuda::capture_mutex());
    cuda::require(cudaStreamBeginCapture(own.handle(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    kernels::StepSlots* const outer = std::exchange(context.step_slots, &slots_);
    try {
      launches([&](std::size_t works) { slots_.works = works; });
    } catch (...) {
      context.step_slots = outer;
      cudaStreamEndCapture(own.handle(), &graph_);
      cudaGetLastError();
      throw;
    }
    context.step_slots = outer;
    cuda::require(cudaStreamEndCapture(own.handle(), &graph_), "cudaStreamEndCapture");
  }

  Device device_;
  cuda::Stream stream_;
  core::Ref<detail::Storage> states_;
  kernels::StepSlots slots_;
  std::vector<kernels::StepState> values_;
  std::shared_ptr<kernels::GpuState> workspace_;  // the graph contains its addresses
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

std::unique_ptr<GpuGraph> GpuGraph::capture(Device device, core::FunctionRef<void(NoteWorks)> launches) {
  auto graph = std::make_unique<CapturedGraph>(device);
  graph->capture(launches);
  return graph;
}

}  // namespace tandem::inline v0::graph

#include <tandem/kernels/cuda/cuda_queue.h>

#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/launch/step.h>

namespace tandem::inline v0::kernels {

CudaQueue::CudaQueue(Context& context) : queue_(std::make_unique<Queue>(context)) {}

CudaQueue::~CudaQueue() = default;

CUstream_st* CudaQueue::stream() const noexcept { return queue_->stream(); }

int CudaQueue::multi_processor_count() const noexcept { return queue_->gpu().multiprocessors; }

unsigned int CudaQueue::blocks_for(std::int64_t items, int items_per_block) const noexcept {
  return queue_->blocks_for(items, items_per_block);
}

void* CudaQueue::workspace(std::size_t bytes) const { return queue_->workspace(bytes); }

StepArgument CudaQueue::step(const StepState* state) const { return step_argument(*queue_, state); }

void CudaQueue::launch(const char* name, core::FunctionRef<cudaError_t()> call) const {
  cuda::note_launch(name);
  cuda::require_room(queue_->gpu().index, name, call);
}

}  // namespace tandem::inline v0::kernels

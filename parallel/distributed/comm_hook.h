#pragma once

#include <cstddef>
#include <functional>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

/// What a CommHook is given: the gradients of some parameters that lie side by side.
struct GradBucket {
  std::size_t index;  // from 0, in the order in which buckets leave
  std::size_t count;  // how many there are
  Tensor gradients;   // one dimension, gaps between parameters (0) included; where the result belongs
};

/// How DistributedDataParallel reduces a bucket. It is called in the backward pass, as soon as the bucket's last
/// gradient is there, to start what may go on meanwhile; and returns what is to be done at the end of the pass, in the
/// order of buckets. Then `gradients` must be the same on all ranks: the mean, if it is to be what one device computes.
///
///     ddp.register_comm_hook([](ProcessGroup& group, const GradBucket& bucket) -> std::function<void()> {
///       Work work = group.all_reduce(bucket.gradients, ReduceOp::avg, true);
///       return [work]() mutable { work.wait(); };
///     });
///
/// All ranks register the same hook. Names as in PyTorch, which also hands out the undivided bucket.
using CommHook = std::function<std::function<void()>(ProcessGroup& group, const GradBucket& bucket)>;

/// The mean in the order of ranks, in f32 for 16-bit gradients: an all-to-all of slices, each rank's sum of its own,
/// and an all-gather. So the result has the same bits for any size of buckets and over any backend; local ranks and
/// Gloo have them anyway, NCCL's own all-reduce does not, and moves as many bytes.
TANDEM_API CommHook fixed_order_hook();
/// Sends gradients as bf16, half of the bytes: rounded before, summed in f32, and rounded once more.
TANDEM_API CommHook bf16_compress_hook();
/// The same as f16. Gradients above 65504 become infinite: with a GradScaler, or small ones.
TANDEM_API CommHook fp16_compress_hook();

}  // namespace tandem::inline v0::parallel

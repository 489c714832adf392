#pragma once

#include <cstddef>
#include <functional>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

/// The argument of a CommHook: gradients of parameters that lie side by side.
struct GradBucket {
  std::size_t index;  // from 0, in the order in which buckets leave
  std::size_t count;  // of buckets
  Tensor gradients;   // one dimension, with gaps of 0 between parameters; the hook writes its result here
};

/// Reduces a bucket for DistributedDataParallel. The backward pass calls the hook as soon as the bucket's last gradient
/// is there; the hook starts its communication and returns a function that finishes it (or an empty one). The end of
/// the pass calls these functions in the order of buckets. After them `gradients` must be the same on all ranks: the
/// mean, if the result is to be that of one device.
///
///     ddp.register_comm_hook([](ProcessGroup& group, const GradBucket& bucket) -> std::function<void()> {
///       Work work = group.all_reduce(bucket.gradients, ReduceOp::avg, true);
///       return [work]() mutable { work.wait(); };
///     });
///
/// All ranks must register the same hook. The names are PyTorch's. As in PyTorch, the bucket is not yet divided by the
/// number of ranks.
using CommHook = std::function<std::function<void()>(ProcessGroup& group, const GradBucket& bucket)>;

/// Sums in the order of ranks, in f32 for 16-bit gradients: an all-to-all of slices, each rank's sum of its own slice,
/// and an all-gather. The mean then has the same bits for any size of buckets and over any backend. Local ranks and
/// Gloo give these bits without a hook; NCCL's own all-reduce moves as many bytes and does not.
TANDEM_API CommHook fixed_order_hook();
/// Sends gradients as bf16, half of the bytes: they are rounded, summed in f32, and rounded once more.
TANDEM_API CommHook bf16_compress_hook();
/// Sends gradients as f16 in the same way. A gradient above 65504 becomes infinite: use a GradScaler, or the hook for
/// bf16.
TANDEM_API CommHook fp16_compress_hook();

}  // namespace tandem::inline v0::parallel

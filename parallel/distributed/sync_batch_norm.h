#pragma once

#include <tandem/core/export.h>
#include <tandem/nn/module_ref.h>
#include <tandem/parallel/comm/process_group.h>

namespace tandem::inline v0::parallel {

/// From now on each BatchNorm of `module` normalises in training with the mean and the variance of all ranks' batches,
/// like one device with the joined batch. Without it, every rank uses its own batch, and a small batch gives noisy
/// statistics. Names and state dict stay the same, and evaluation is as before:
///
///     Net model;
///     parallel::sync_batch_norm(model);
///     parallel::DistributedDataParallel ddp(model);
///
/// Batches may differ in size, and a rank's may be empty. The running statistics have the same bits on all ranks. Each
/// layer's forward and backward pass waits for the other ranks, so all ranks run the same layers in the same order; the
/// exchanges are collectives of a group of their own, made here. A rank whose pass fails must end: if it goes on, its
/// next batch is joined with this one of the others. A group of one rank makes layers use their own batches again. Of a
/// single value in all batches together the normalised one is 0.
///
/// A collective. Calling it again replaces the group. A layer that syncs throws ConfigError within a replica of
/// DataParallel, and a Join throws it for a module with such layers.
///
/// Statistics are joined by the formula of Chan, Golub and LeVeque (1979), in the order of ranks; the purpose is that
/// of torch.nn.SyncBatchNorm.
TANDEM_API void sync_batch_norm(const nn::ModuleRef& module, ProcessGroup& group = default_group());

}  // namespace tandem::inline v0::parallel

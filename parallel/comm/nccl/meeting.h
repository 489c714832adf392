#pragma once

#include <tandem/core/device.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/nccl/cuda/library.h>

// Internal: what ranks tell each other before NCCL may begin.

namespace tandem::inline v0::parallel::nccl {

/// Rank 0's id for a new communicator, on every rank of `base`. Throws on all of them ConfigError where one has no
/// NCCL, or two share a GPU, which NCCL refuses.
ncclUniqueId meet(Backend& base, Device gpu, const CallTime& time);

}  // namespace tandem::inline v0::parallel::nccl

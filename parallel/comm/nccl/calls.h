#pragma once

#include <tandem/parallel/comm/collective.h>
#include <tandem/parallel/comm/nccl/cuda/library.h>

// Internal: translates collectives into NCCL calls.

namespace tandem::inline v0::parallel::nccl {

/// Queues the NCCL calls of rank `rank` of `size` for `call`, within an NCCL group. Returns the first failure.
ncclResult_t issue(const Functions& nccl, ncclComm_t comm, CUstream_st* stream, int rank, int size,
                   const Collective& call, const Buffers& buffers);

}  // namespace tandem::inline v0::parallel::nccl

#pragma once

#include <tandem/parallel/comm/collective.h>
#include <tandem/parallel/comm/nccl/cuda/library.h>

// Internal: collectives in NCCL's words.

namespace tandem::inline v0::parallel::nccl {

/// Queues what `rank` of `size` does in `call`, within a group; the first failure is returned.
ncclResult_t issue(const Functions& nccl, ncclComm_t comm, CUstream_st* stream, int rank, int size,
                   const Collective& call, const Buffers& buffers);

}  // namespace tandem::inline v0::parallel::nccl

#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <tandem/core/device.h>
#include <tandem/core/export.h>
#include <tandem/parallel/comm/backend.h>

namespace tandem::inline v0::parallel {

/// Options of nccl_backend().
struct NcclOptions {
  /// Time limit until all ranks have joined; more than 0.
  std::chrono::milliseconds timeout = std::chrono::minutes(1);
};

/// The reason why this build on this machine cannot use NCCL; empty if it can. The first call looks for the library:
/// the file named by TANDEM_NCCL_LIBRARY, else libnccl.so.2.
TANDEM_API std::string why_nccl_is_unavailable();

/// One rank of a group in which NCCL carries the tensors on `device`, a GPU that no other rank uses. Everything else
/// goes through `base`, a host backend with the same ranks: CPU tensors, the comparison of calls, barriers, and news of
/// failures. send() and recv() also go through `base`, by page-locked memory, because NCCL's have no tags and wait for
/// each other.
/// All ranks call it, and an error of one rank is thrown on all: ConfigError if a rank has no NCCL or shares its GPU
/// with another, CommError if a rank does not join in time.
///
/// run() queues a call on the GPU and returns. A watchdog thread ends the group on every rank, together with NCCL's
/// kernels, when NCCL or another rank reports a failure or the call's deadline has passed. NCCL rounds 16-bit types at
/// each addition, and its min and max ignore NaN; both differ from ReduceOp's definition.
TANDEM_API std::unique_ptr<Backend> nccl_backend(std::unique_ptr<Backend> base, Device device,
                                                 const NcclOptions& options = {});

}  // namespace tandem::inline v0::parallel

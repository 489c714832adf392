#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <tandem/core/device.h>
#include <tandem/core/export.h>
#include <tandem/parallel/comm/backend.h>

namespace tandem::inline v0::parallel {

/// How a group over NCCL is made.
struct NcclOptions {
  /// Until all ranks have joined; more than 0.
  std::chrono::milliseconds timeout = std::chrono::minutes(1);
};

/// Why this build on this machine cannot use NCCL; empty where it can. The library is looked for at the first call:
/// the file that TANDEM_NCCL_LIBRARY names, else libnccl.so.2.
TANDEM_API std::string why_nccl_is_unavailable();

/// One rank of a group whose tensors on `device`, a GPU of its own, are carried by NCCL. All else goes by `base`, a
/// backend of the host with the same ranks: tensors of a CPU, the comparison of calls, barriers, what ranks tell each
/// other of failures; send() and recv(), too, by page-locked memory, since NCCL's know no tags and wait for each other.
/// All ranks call it, and all throw what one of them throws: ConfigError where a rank has no NCCL or shares its GPU
/// with another, CommError where one does not join in time.
///
/// run() leaves a call to the GPU and returns; a thread looks after it, which ends the group on every rank, and NCCL's
/// kernels with it, when NCCL or another rank reports a failure or the call's deadline has passed. NCCL rounds 16-bit
/// types at each addition, and min and max leave out a NaN: there it is not as ReduceOp says.
TANDEM_API std::unique_ptr<Backend> nccl_backend(std::unique_ptr<Backend> base, Device device,
                                                 const NcclOptions& options = {});

}  // namespace tandem::inline v0::parallel

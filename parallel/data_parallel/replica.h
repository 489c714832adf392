#pragma once

#include <optional>

#include <tandem/core/export.h>
#include <tandem/tensor/frame.h>

namespace tandem::inline v0::parallel {

using core::ReplicaInfo;

/// The replica that the calling thread computes, within forward() or a loss of DataParallel: index, number of replicas,
/// device. Outside of replicas, index 0 of 1 on the current device.
TANDEM_API ReplicaInfo replica() noexcept;

/// The replica that failed when parallel_apply() or DataParallel last threw on this thread; empty if none failed.
TANDEM_API std::optional<ReplicaInfo> last_failure() noexcept;

}  // namespace tandem::inline v0::parallel

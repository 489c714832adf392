#pragma once

#include <cstdint>
#include <span>

#include <tandem/core/device.h>
#include <tandem/parallel/comm/collective.h>

// Internal.

namespace tandem::inline v0::parallel {

/// The values of all ranks in their order, `count` elements of each, as the call's dtype and op say, into every one of
/// `out` (kernels::Combine), on `device`.
void combine(const Collective& call, Device device, std::span<const void* const> in, std::span<void* const> out,
             std::int64_t count);

}  // namespace tandem::inline v0::parallel

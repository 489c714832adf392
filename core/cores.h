#pragma once

#include <string_view>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::core {

/// Number of processor cores this process may keep busy, at least 1: the cores of its affinity mask, or fewer if its
/// control group grants less processor time (`docker run --cpus 2`).
TANDEM_API int available_cores();

/// The numbers of the cores in this process's affinity mask, in ascending order; empty where the system does not say.
TANDEM_API std::vector<int> cores_of_affinity_mask();

/// Converts the text of a control group's cpu.max, for example "150000 100000" (quota and period in microseconds), to a
/// number of cores, rounded up. Returns 0 if the text sets no limit or cannot be read.
int cores_of_quota(std::string_view text);

}  // namespace tandem::inline v0::core

#pragma once

#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0::core {

/// Processor cores this process may keep busy, at least 1: those of its affinity mask, or fewer where its control group
/// is given less time than that (`docker run --cpus 2`).
TANDEM_API int available_cores();

/// How many cores `quota` of `period` microseconds are, rounded up, from the text of a control group's cpu.max, as in
/// "150000 100000"; 0 where it sets no limit or says something else.
int cores_of_quota(std::string_view text);

}  // namespace tandem::inline v0::core

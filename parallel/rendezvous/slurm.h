#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

// Internal: Slurm's short forms of lists. They come from the environment: anything may stand there.

namespace tandem::inline v0::parallel {

/// How many tasks the node with this number has: slurm_tasks_on("2(x3),1", 3) is 1. Nothing where the list is malformed
/// up to there, or too short.
TANDEM_API std::optional<int> slurm_tasks_on(std::string_view list, int node);

/// The first of a list of hosts: "gpu-007" of "gpu-[007-012,20],login". Nothing where it is malformed up to there.
TANDEM_API std::optional<std::string> slurm_first_host(std::string_view list);

}  // namespace tandem::inline v0::parallel

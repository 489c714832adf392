#pragma once

#include <memory>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/process_group.h>

namespace tandem::inline v0::parallel {

/// Makes a process group whose ranks are threads of this process. Element r belongs to the thread that is rank r.
/// spawn() calls this and starts the threads; call it yourself for threads of your own. A rank that destroys its group
/// is lost to the others. Throws ConfigError for fewer than 1 rank.
TANDEM_API std::vector<std::unique_ptr<ProcessGroup>> local_groups(int ranks, const ProcessGroupOptions& options = {});

}  // namespace tandem::inline v0::parallel

#pragma once

#include <array>

#include <tandem/core/export.h>

// Internal: places at which a test has a process end.

namespace tandem::inline v0::core {

/// The names of all failpoints.
inline constexpr std::array kFailpoints{
    "meet",           // ranks begin to meet
    "collective",     // a call of a process group runs
    "bucket",         // a bucket of gradients leaves
    "step",           // a step of a Run has ended
    "save.copied",    // the state was copied, and nothing is written
    "save.written",   // the bytes of a file are on the disk, under a temporary name
    "save.renamed",   // the file has its name, and older checkpoints are there
    "save.finished",  // a checkpoint is complete
    "leave",          // a rank begins to leave its job
};

/// With TANDEM_FAILPOINT="save.written:2" the process kills itself when it comes to that place for the second time, and
/// says at its first failpoint that it will. Does nothing without the variable, in a job that was restarted, and, after
/// a warning, for a variable in another form.
TANDEM_API void failpoint(const char* name) noexcept;

}  // namespace tandem::inline v0::core

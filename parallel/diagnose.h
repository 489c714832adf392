#pragma once

#include <string>

#include <tandem/core/export.h>
#include <tandem/core/step_times.h>

namespace tandem::inline v0::parallel {

class ProcessGroup;

/// Where the time of the steps that `times` has seen went, phase by phase, what of it is no computing, and what can be
/// done about the largest part: a few lines to print.
TANDEM_API std::string diagnose(const StepTimes& times);
/// The same of all ranks of `group` together, which all must call: the means of the phases, and which rank the others
/// wait for. All get the same text. Throws CommError as collectives do.
TANDEM_API std::string diagnose(const StepTimes& times, ProcessGroup& group);

}  // namespace tandem::inline v0::parallel

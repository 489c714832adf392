#pragma once

#include <string>

#include <tandem/core/export.h>
#include <tandem/core/step_times.h>

namespace tandem::inline v0::parallel {

class ProcessGroup;

/// Where the time of the steps that `times` has seen went, phase by phase, and the largest part that could be saved,
/// with what would save it: a few lines to print. Of the first step, which differs, only where there is no other.
TANDEM_API std::string diagnose(const StepTimes& times);
/// The same of all ranks of `group` together, which all must call, each with its own times: the means of the phases,
/// and which ranks, by their numbers in `group`, the others wait for. All get the same text. Throws CommError as
/// collectives do.
TANDEM_API std::string diagnose(const StepTimes& times, ProcessGroup& group);

}  // namespace tandem::inline v0::parallel

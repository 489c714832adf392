#pragma once

#include <string>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/core/step_times.h>
#include <tandem/telemetry/step_profile.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

class ProcessGroup;

/// A report of a few lines: the time per phase of the steps that `times` has seen, and the largest part that could be
/// saved with the change that would save it. The first step, which is not typical, counts only if there is no other.
TANDEM_API std::string diagnose(const StepTimes& times);
/// A report on all ranks of `group` together: the means of the phases, and the ranks (numbered as in `group`) that the
/// others wait for. All ranks must call it, each with its own times, and all get the same text. Throws CommError like
/// any collective.
TANDEM_API std::string diagnose(const StepTimes& times, ProcessGroup& group);

/// The numbers of the steps that `times` has seen, from which those of other runs can be predicted. `parameters` are
/// those of the model, in the order of their use.
TANDEM_API telemetry::StepProfile profile(const StepTimes& times, const std::vector<Tensor>& parameters);
/// The numbers of all ranks of `group`. All ranks must call it, and all get the same ones. Throws CommError like any
/// collective.
TANDEM_API telemetry::StepProfile profile(const StepTimes& times, const std::vector<Tensor>& parameters,
                                          ProcessGroup& group);

}  // namespace tandem::inline v0::parallel

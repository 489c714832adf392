#include <tandem/parallel/diagnose.h>

#include <tandem/core/check.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/step_exchange.h>
#include <tandem/telemetry/diagnosis.h>

namespace tandem::inline v0::parallel {

using telemetry::Ranks;
using telemetry::RankSteps;

std::string diagnose(const StepTimes& times) { return telemetry::diagnosis(Ranks({RankSteps::of(times)})); }

std::string diagnose(const StepTimes& times, ProcessGroup& group) {
  try {
    return telemetry::diagnosis(StepExchange(group).run(times));
  } catch (Error& error) {
    error.add_context("in parallel::diagnose(times, group), which all ranks of the group must call");
    throw;
  }
}

}  // namespace tandem::inline v0::parallel

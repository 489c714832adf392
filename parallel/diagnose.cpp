#include <tandem/parallel/diagnose.h>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/step_exchange.h>
#include <tandem/telemetry/diagnosis.h>

namespace tandem::inline v0::parallel {

using telemetry::Ranks;
using telemetry::RankSteps;
using telemetry::StepProfile;

namespace {

Ranks ranks_of(const StepTimes& times) { return Ranks({RankSteps::of(times)}); }

Ranks ranks_of(const StepTimes& times, ProcessGroup& group, const char* call) {
  try {
    return StepExchange(group).run(times);
  } catch (Error& error) {
    error.add_context(fmt::format("in parallel::{}, which all ranks of the group must call", call));
    throw;
  }
}

StepProfile profile_of(const Ranks& ranks, const std::vector<Tensor>& parameters) {
  StepProfile profile = telemetry::profile_of(ranks);
  for (const Tensor& parameter : parameters) {
    profile.parameter_bytes.push_back(static_cast<double>(parameter.numel()) *
                                      static_cast<double>(item_size(parameter.dtype())));
  }
  return profile;
}

}  // namespace

std::string diagnose(const StepTimes& times) { return telemetry::diagnosis(ranks_of(times)); }

std::string diagnose(const StepTimes& times, ProcessGroup& group) {
  return telemetry::diagnosis(ranks_of(times, group, "diagnose(times, group)"));
}

StepProfile profile(const StepTimes& times, const std::vector<Tensor>& parameters) {
  return profile_of(ranks_of(times), parameters);
}

StepProfile profile(const StepTimes& times, const std::vector<Tensor>& parameters, ProcessGroup& group) {
  return profile_of(ranks_of(times, group, "profile(times, parameters, group)"), parameters);
}

}  // namespace tandem::inline v0::parallel

#pragma once

#include <string>

#include <tandem/telemetry/rank_steps.h>

namespace tandem::inline v0::telemetry {

/// A report of a few lines: the time per phase of these ranks' steps, and the largest part that could be saved with the
/// change that would save it. parallel::diagnose() collects the ranks.
std::string diagnosis(const Ranks& ranks);

}  // namespace tandem::inline v0::telemetry

#pragma once

#include <optional>
#include <string>

#include <tandem/telemetry/run_folder.h>

// Internal: lines of metrics.jsonl as points of curves.

namespace tandem::inline v0::telemetry {

/// The value as a number; none for texts, truth values and lists.
std::optional<double> number_in(const FieldValue& value);

/// The field along which the others of a line are drawn: "step", else "epoch", if it has a whole number. Empty: neither
/// has.
std::string axis_of(const Fields& fields);

}  // namespace tandem::inline v0::telemetry

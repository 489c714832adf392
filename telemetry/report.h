#pragma once

#include <string>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::telemetry {

/// A page about a run, made from the files of its folder: the curves of metrics.jsonl, one step of trace.json and how
/// the time of all of them was used, the diagnosis, and config.json; what is not there is left out. With further
/// folders their curves are drawn beside the first one's. The page is one file of HTML without scripts and links, for
/// light and dark screens. Throws IoError if the first folder has neither metrics nor a trace, or if a file is not what
/// its name says.
TANDEM_API std::string html_report(const std::string& folder, const std::vector<std::string>& others = {});

}  // namespace tandem::inline v0::telemetry

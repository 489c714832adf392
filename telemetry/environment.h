#pragma once

#include <string>

#include <tandem/telemetry/run_folder.h>

// Internal: in what surroundings a run was made.

namespace tandem::inline v0::telemetry {

/// The versions of tandem and its compiler, the machine, the time, and the git commit of the folder that the program
/// was started in, if that is a work tree: for environment.json.
Fields environment();

/// The commit that is checked out in the work tree around `folder`; empty: there is none, or it cannot be read.
/// Whether files differ from it is not known.
std::string git_commit(const std::string& folder);

}  // namespace tandem::inline v0::telemetry

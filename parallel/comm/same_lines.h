#pragma once

#include <string>
#include <vector>

namespace tandem::inline v0::parallel {

class ProcessGroup;

/// Internal: compares lines across ranks: by a hash, and only if that differs by themselves. Throws ConfigError on
/// every rank: the ranks' `what` differ, according to `who`, with the first differing line and its rank, and `advice`.
/// A collective.
void check_same(ProcessGroup& group, const char* who, const std::vector<std::string>& lines, const char* what,
                const char* advice);

}  // namespace tandem::inline v0::parallel

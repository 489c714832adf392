#pragma once

#include <string>

namespace tandem::parallel {

/// Compares the collectives of a process group over Gloo with those of a program that uses Gloo directly: in the same
/// processes, in turn, and on the same numbers. Rank 0 prints medians of the time per call, and the median of each
/// round's ratio to Gloo's fastest algorithm with its quartiles. Returns the exit code.
///
/// Without `folder` the ranks are two processes on this host. With it, the caller is one rank of a job: RANK and
/// WORLD_SIZE say which, all ranks share the new folder, and GLOO_SOCKET_IFNAME names the network interface to listen
/// at.
int bench_over_gloo(int rounds, std::string folder);

}  // namespace tandem::parallel

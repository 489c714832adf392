#pragma once

namespace tandem::parallel {

/// Two processes: all-reduces of a process group over Gloo, in turns with those of a program that uses Gloo itself.
/// Prints medians, and medians of each round's ratio to Gloo's ring. The exit code.
int bench_over_gloo(int rounds);

}  // namespace tandem::parallel

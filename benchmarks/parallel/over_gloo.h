#pragma once

namespace tandem::parallel {

/// Compares all-reduces of a process group over Gloo with those of a program that uses Gloo directly, in two processes
/// and in turn. Prints medians, and medians of each round's ratio to Gloo's ring. Returns the exit code.
int bench_over_gloo(int rounds);

}  // namespace tandem::parallel

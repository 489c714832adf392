#pragma once

#include <cstdint>
#include <source_location>
#include <type_traits>
#include <vector>

#include <tandem/core/device.h>
#include <tandem/core/export.h>
#include <tandem/core/function_ref.h>
#include <tandem/parallel/comm/process_group.h>

namespace tandem::inline v0 {
class Generator;
}

namespace tandem::inline v0::parallel {

/// How ranks are started.
struct SpawnOptions {
  /// Each rank's current device, where its new tensors are created. Empty means cpu:0, cpu:1, ...: ranks then do not
  /// share a device, and the use of another rank's tensor is noticed. {"cpu:0", "cpu:0"} allows sharing.
  std::vector<Device> devices = {};
  /// Options of the default group.
  ProcessGroupOptions group = {};
  /// Whether each rank is a process instead of a thread. A process's device comes from `devices`, or is the process's
  /// own default.
  bool processes = false;
  /// The others go on without ranks whose fn throws, as long as so many are left (or have ended well): they call fn
  /// anew, as ranks of a smaller group, see run_elastic(). 0: one lost rank ends all. A warning tells of each loss. If
  /// too few are left, ranks that are threads throw the first one's error, and processes a CommError.
  int elastic = 0;
};

namespace detail {
/// Seeds a rank's generator. Rank 0 draws what a single process would draw from `seed` at `offset`; other ranks draw
/// their own numbers.
void seed_as_rank(Generator& generator, std::uint64_t seed, std::uint64_t offset, int rank);
/// Calls fn with the group, or with the rank's number in it.
template <class Fn>
void call_rank(const Fn& fn, ProcessGroup& group) {
  if constexpr (std::is_invocable_v<const Fn&, int>) {
    fn(group.rank());
  } else {
    fn(group);
  }
}
TANDEM_API void spawn_threads(int ranks, core::FunctionRef<void(ProcessGroup&)> body, const SpawnOptions& options);
TANDEM_API void spawn_processes(int ranks, core::FunctionRef<void(ProcessGroup&)> body, const SpawnOptions& options,
                                const std::source_location& where);
}  // namespace detail

/// Runs fn as `ranks` ranks, each a thread of this process, and returns when all have ended:
///
///     parallel::spawn(2, [&](int rank) { ... });                      // like torch.multiprocessing.spawn
///     parallel::spawn(2, [&](parallel::ProcessGroup& group) { ... });  // fn receives the default group
///
/// Each rank has its own default group (default_group(), get_rank()), current device and random numbers. Rank 0 draws
/// what the caller would draw; every other rank draws its own numbers, which are equal in every run. All other state of
/// the calling thread, such as grad mode, holds in the ranks too. Once a rank's fn has ended, ranks that still wait for
/// this rank lose it.
///
/// Exceptions: spawn() waits for all ranks and then rethrows the exception of the lowest rank that failed by itself,
/// not because it lost another rank. tandem's errors and the standard library's (std::runtime_error, ...) have the rank
/// in their text; other types are rethrown as they are. Throws ConfigError for fewer than 1
/// rank, if the number of devices is not the number of ranks, inside a rank, and if a launcher has already made this
/// process a rank (RANK is set).
///
///     parallel::spawn(2, [&](int rank) { ... }, {.processes = true});
///
/// starts this program anew for each rank with the same arguments. In each child main() follows the same path to this
/// call, runs fn here and ends the process; earlier calls of this kind return at once. So every process executes main()
/// up to the call, and changes made by fn stay in its own process. The default group uses Gloo, stdin is empty, and a
/// rank dies with its parent. Its output passes through this process, line by line. In the parent the call returns when
/// all ranks have ended. If a rank throws an error of tandem's or of the standard library, the parent throws it again,
/// with the rank in its text. For any other exception, and for a rank that ends by a signal or a nonzero exit code, it
/// throws a CommError with fault peer_lost that names the rank. The other ranks receive a CommError, and end. The
/// arguments come from /proc/self/cmdline, so a program that overwrites its own
/// arguments cannot use processes.
template <class Fn>
void spawn(int ranks, const Fn& fn, const SpawnOptions& options = {},
           const std::source_location& where = std::source_location::current()) {
  const auto body = [&](ProcessGroup& group) { detail::call_rank(fn, group); };
  if (options.processes) {
    detail::spawn_processes(ranks, body, options, where);
  } else {
    detail::spawn_threads(ranks, body, options);
  }
}

}  // namespace tandem::inline v0::parallel

#pragma once

#include <source_location>
#include <type_traits>
#include <vector>

#include <tandem/core/device.h>
#include <tandem/core/export.h>
#include <tandem/core/function_ref.h>
#include <tandem/parallel/comm/process_group.h>

namespace tandem::inline v0::parallel {

/// How ranks are started.
struct SpawnOptions {
  /// Each rank's current device, where its new tensors are; empty: cpu:0, cpu:1, ... so that ranks do not share a
  /// device and a tensor of another rank is noticed. With the devices {"cpu:0", "cpu:0"} they may.
  std::vector<Device> devices = {};
  /// Of the default group.
  ProcessGroupOptions group = {};
  /// Whether each rank is a process of its own and not a thread. Their devices are then what `devices` says or else the
  /// process's own default.
  bool processes = false;
};

namespace detail {
TANDEM_API void spawn_threads(int ranks, core::FunctionRef<void(ProcessGroup&)> body, const SpawnOptions& options);
TANDEM_API void spawn_processes(int ranks, core::FunctionRef<void(ProcessGroup&)> body, const SpawnOptions& options,
                                const std::source_location& where);
}  // namespace detail

/// Runs fn as `ranks` ranks, each a thread of this process, and returns when all have ended:
///
///     parallel::spawn(2, [&](int rank) { ... });                      // as torch.multiprocessing.spawn
///     parallel::spawn(2, [&](parallel::ProcessGroup& group) { ... });  // the same, with the default group at hand
///
/// Each rank has its own default group (default_group(), get_rank()), current device and random numbers: rank 0 draws
/// what the caller would, the others what is theirs alone, the same in every run. All else that the caller carries,
/// such as grad mode, holds in them, too. A rank whose fn has ended is lost to those who still wait for it.
///
/// Exceptions: all ranks are waited for, then that of the lowest rank that failed by itself, and not because it lost
/// another, is thrown again; tandem's errors with the rank in their text. Throws ConfigError for fewer than 1 rank, for
/// a number of devices that is not that of ranks, within a rank, and where a launcher has made this process a rank
/// already (RANK is set).
///
///     parallel::spawn(2, [&](int rank) { ... }, {.processes = true});
///
/// starts this program anew, once for each rank, with the same arguments: main() takes the same way again up to this
/// very call, which runs fn there and ends that process, while earlier calls of this kind return at once. So what
/// main() does before is done in every process, and what fn changes stays in its own. Their default group is over Gloo;
/// stdin is empty, and a rank dies with its parent. In the parent the call returns
/// when all have ended. What a rank throws, the signal or the exit code that ends it, comes as a CommError of the fault
/// peer_lost that names the rank; the others are told, too, and end. Arguments
/// are read from /proc/self/cmdline; a program that writes over its own cannot do this.
template <class Fn>
void spawn(int ranks, const Fn& fn, const SpawnOptions& options = {},
           const std::source_location& where = std::source_location::current()) {
  const auto body = [&](ProcessGroup& group) {
    if constexpr (std::is_invocable_v<const Fn&, int>) {
      fn(group.rank());
    } else {
      fn(group);
    }
  };
  if (options.processes) {
    detail::spawn_processes(ranks, body, options, where);
  } else {
    detail::spawn_threads(ranks, body, options);
  }
}

}  // namespace tandem::inline v0::parallel

#pragma once

#include <nccl.h>

// Functions of the emulated NCCL for tests. Its ranks are threads of one process.
//
// Stricter than NCCL: communicators must not block, and operations on them need a few queries to finish. Misuse is
// counted: two threads inside one communicator at once, or use of one that has ended. A collective that is missing on
// some rank's GPU is waited for forever.

namespace emulated_nccl {

/// A failure of all calls made from now on, on all ranks.
enum class Trouble {
  none,
  join_hangs,        // no communicator is ever ready
  collective_hangs,  // a kernel ends only by ncclCommAbort
  async_error,       // reported once a collective is queued
  call_fails,        // a collective fails at once with ncclSystemError
  abort_hangs,       // like collective_hangs, and ncclCommAbort does not return before the trouble is over
};
void set_trouble(Trouble trouble);

struct Counts {
  int joined = 0;
  int destroyed = 0;
  int aborted = 0;
  int collectives = 0;
  int misuses = 0;
};
/// The counts since the start of the process.
Counts counts();

}  // namespace emulated_nccl

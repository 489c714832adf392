#pragma once

#include <nccl.h>

// What tests may ask of the emulated NCCL, whose ranks are threads of one process.
//
// Stricter than NCCL: communicators must not block, and what they begin takes a few queries; two threads that are
// inside of one at once, or use one that has ended, are counted. A call that is not on every rank's GPU is waited for
// for ever.

namespace emulated_nccl {

/// What goes wrong with what is called from now on, on all ranks.
enum class Trouble {
  none,
  join_hangs,        // no communicator is ever there
  collective_hangs,  // a kernel ends by ncclCommAbort alone
  async_error,       // found once a collective is queued
  call_fails,        // a collective is refused at once, with ncclSystemError
  abort_hangs,       // as collective_hangs, and ncclCommAbort does not come back before trouble is over
};
void set_trouble(Trouble trouble);

struct Counts {
  int joined = 0;
  int destroyed = 0;
  int aborted = 0;
  int collectives = 0;
  int misuses = 0;
};
/// Since the process began.
Counts counts();

}  // namespace emulated_nccl

#pragma once

#include <tandem/core/bad_value.h>

// Internal: how a kernel reports a value that no op can use. On a CPU an op looks first and throws; a GPU would have to
// be waited for. So the kernel goes on without the value, leaves a note in host memory, and whoever next waits for the
// GPU throws it.

namespace tandem::inline v0::cuda {

/// The note. The first one stays until it is thrown.
struct Fault {
  unsigned int claimed = 0;  // by the thread that writes the rest
  unsigned int ready = 0;    // the rest is written
  core::BadValue found;      // its op is text of the host: name_in_notes()
};

/// What notes call an op that the calling thread launches: its name, behind the type and path of the module that runs
/// it. Text of the host that is kept for ever, since the note may be read at any time; a string literal in a kernel
/// would be in the GPU's memory.
const char* name_in_notes(const char* op);
/// `bad` with such a name.
inline core::BadValue for_notes(core::BadValue bad) {
  bad.op = bad.op != nullptr ? name_in_notes(bad.op) : nullptr;
  return bad;
}

/// Throws ValueError for the note at `fault`, if there is one, and wipes it.
void throw_fault(Fault& fault, int device);

}  // namespace tandem::inline v0::cuda

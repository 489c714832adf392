#pragma once

#include <tandem/core/bad_value.h>

// Internal: how a kernel reports a value that no op can use. An op on a CPU checks the values first and throws. On a
// GPU that check would have to wait for the device. The kernel instead continues without the value and leaves a note in
// host memory; the next wait for the GPU throws it.

namespace tandem::inline v0::cuda {

/// The note. The first note stays until it is thrown.
struct Fault {
  unsigned int claimed = 0;  // set by the GPU thread that writes the rest
  unsigned int ready = 0;    // set once the rest is written
  core::BadValue found;      // `op` points to host text from name_in_notes()
};

/// The name of an op in notes: the type and path of the calling module, then the op. The text lives in host memory and
/// is kept forever, because a note may be read at any time. A string literal in a kernel would lie in the GPU's memory.
const char* name_in_notes(const char* op);
/// A copy of `bad` whose `op` is such a name.
inline core::BadValue for_notes(core::BadValue bad) {
  bad.op = bad.op != nullptr ? name_in_notes(bad.op) : nullptr;
  return bad;
}

/// Throws ValueError for the note in `fault`, if it holds one, and clears the note.
void throw_fault(Fault& fault, int device);

}  // namespace tandem::inline v0::cuda

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
  core::BadValue found;
};

/// Throws ValueError for the note at `fault`, if there is one, and wipes it.
void throw_fault(Fault& fault, int device);

}  // namespace tandem::inline v0::cuda

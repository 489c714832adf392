#pragma once

#include <cstdint>

#include <tandem/core/bad_value.h>
#include <tandem/core/cuda/ordered_mutex.h>
#include <tandem/core/cuda_stream.h>

// Internal: the process-wide state of each GPU, and how its kernels report a value that no op can use. An op on a CPU
// checks the values first and throws. On a GPU that check would have to wait for the device. The kernel instead
// continues without the value and leaves a note in host memory; the next wait for the GPU throws it.

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

/// One GPU in use. Made at first use and kept until the process ends.
struct Gpu {
  int index;
  int multiprocessors;
  int capability;  // compute capability: 90 means 9.0
  Stream stream;   // the default stream
  Fault* fault;    // host memory to which kernels write
};

/// The state of GPU `index`. Throws DeviceError if the GPU does not exist.
TANDEM_API const Gpu& gpu(int index);

/// The calling thread's stream, as returned by current_stream().
TANDEM_API const Stream& current_stream_of(const Gpu& gpu) noexcept;
/// The handle of the calling thread's stream.
inline CUstream_st* current_handle(const Gpu& gpu) noexcept { return current_stream_of(gpu).handle(); }

/// Held by a thread that captures a stream and by a thread that queries all streams of a GPU: the query would break off
/// the capture.
using CaptureMutex = OrderedMutex<LockPlace::capture>;
TANDEM_API CaptureMutex& capture_mutex() noexcept;

/// Releases cached memory of a GPU when a kernel needs scratch memory. The layer that caches memory sets the function.
using ReleaseCache = void (*)(int gpu);
TANDEM_API void set_release_cache(ReleaseCache release) noexcept;
/// Calls the function that set_release_cache() stored.
TANDEM_API void release_cache(int gpu);

}  // namespace tandem::inline v0::cuda

#pragma once

#include <memory>
#include <span>
#include <vector>

#include <tandem/core/export.h>

struct CUstream_st;
struct CUevent_st;

// Internal: the host waits for a GPU here, and nowhere else.

namespace tandem::inline v0::cuda {

/// Blocks until GPU `gpu` has done what `stream` holds now, or has got to `event`; what other threads queue meanwhile
/// is not waited for. `call` is what the program called, for messages. Throws DeviceError for what the GPU ran into,
/// and after TANDEM_GPU_TIMEOUT seconds: 600 unless set, 0 for no limit. What is queued on a GPU takes seconds at most;
/// ten minutes are what PyTorch's collectives wait for each other.
TANDEM_API void wait_for(int gpu, CUstream_st* stream, const char* call);
TANDEM_API void wait_for(int gpu, CUevent_st* event, const char* call);

/// What streams of a GPU held when this was made: for a wait that may not ask the streams themselves any more.
class QueuedWork {
 public:
  /// Throws DeviceError for what the GPU ran into, found by `call`.
  QueuedWork(int gpu, std::span<CUstream_st* const> streams, const char* call);
  /// Blocks until it is done, as wait_for(). Asks events alone, which breaks no other thread's capture off.
  void wait();

 private:
  struct DestroyEvent {
    void operator()(CUevent_st* event) const;
  };
  struct Busy {
    CUstream_st* stream;  // for messages
    std::unique_ptr<CUevent_st, DestroyEvent> end;
  };
  static Busy end_of(int gpu, CUstream_st* stream);

  int gpu_;
  const char* call_;
  std::vector<Busy> busy_;
};

}  // namespace tandem::inline v0::cuda

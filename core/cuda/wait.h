#pragma once

#include <memory>
#include <span>
#include <vector>

#include <tandem/core/export.h>

struct CUstream_st;
struct CUevent_st;

// Internal: the host waits for a GPU only through these functions.

namespace tandem::inline v0::cuda {

/// Blocks until GPU `gpu` has finished the work that `stream` holds now, or has reached `event`. Work that other
/// threads queue in the meantime is not awaited. `call` names the program's call in messages. Throws DeviceError for a
/// failure of the GPU and after TANDEM_GPU_TIMEOUT seconds (600 by default, 0 for no limit). Queued GPU work takes
/// seconds at most; ten minutes is also the limit of PyTorch's collectives.
TANDEM_API void wait_for(int gpu, CUstream_st* stream, const char* call);
TANDEM_API void wait_for(int gpu, CUevent_st* event, const char* call);

/// The work that streams of a GPU held at construction, for a wait that may no longer query the streams themselves.
class QueuedWork {
 public:
  /// Throws DeviceError for a failure of the GPU, reported as found by `call`.
  QueuedWork(int gpu, std::span<CUstream_st* const> streams, const char* call);
  /// Blocks until that work is done, with the limits of wait_for(). Only events are queried, so no other thread's
  /// capture breaks off.
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

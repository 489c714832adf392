#pragma once

#include <span>

#include <tandem/core/export.h>

struct CUstream_st;
struct CUevent_st;

// Internal: the host waits for a GPU here, and nowhere else.

namespace tandem::inline v0::cuda {

/// Blocks until GPU `gpu` has done what the streams hold now, or has got to `event`; what other threads queue meanwhile
/// is not waited for. `call` is what the program called, for
/// messages. Throws DeviceError for what the GPU ran into, and after TANDEM_GPU_TIMEOUT seconds: 600 unless set, 0 for
/// no limit. What is queued on a GPU takes seconds at most; ten minutes are what PyTorch's collectives wait for each
/// other.
TANDEM_API void wait_for(int gpu, std::span<CUstream_st* const> streams, const char* call);
inline void wait_for(int gpu, CUstream_st* stream, const char* call) { wait_for(gpu, std::span(&stream, 1), call); }
TANDEM_API void wait_for(int gpu, CUevent_st* event, const char* call);

}  // namespace tandem::inline v0::cuda

#pragma once

#include <string>

#include <nccl.h>

// Internal: NCCL's functions, looked up at first use, so that programs start without the library.

namespace tandem::inline v0::parallel::nccl {

// All of these exist since NCCL 2.14, the first version with non-blocking communicators.
#define TANDEM_NCCL_FUNCTIONS(f)                                                                                \
  f(ncclGetVersion) f(ncclGetUniqueId) f(ncclGetErrorString) f(ncclGetLastError) f(ncclCommInitRankConfig)      \
      f(ncclCommGetAsyncError) f(ncclCommFinalize) f(ncclCommDestroy) f(ncclCommAbort) f(ncclGroupStart)        \
          f(ncclGroupEnd) f(ncclAllReduce) f(ncclReduce) f(ncclBroadcast) f(ncclAllGather) f(ncclReduceScatter) \
              f(ncclSend) f(ncclRecv)

struct Functions {
#define TANDEM_NCCL_MEMBER(name) decltype(&::name) name = nullptr;
  TANDEM_NCCL_FUNCTIONS(TANDEM_NCCL_MEMBER)
#undef TANDEM_NCCL_MEMBER
};

struct Library {
  Functions functions{};
  std::string problem{};  // the reason why the library can't be used; empty if it can
};

/// The process's only instance, looked up at the first call and never unloaded.
const Library& loaded();
/// The functions of the library. Call it only if the library has no problem.
inline const Functions& api() { return loaded().functions; }

}  // namespace tandem::inline v0::parallel::nccl

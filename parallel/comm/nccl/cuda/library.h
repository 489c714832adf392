#pragma once

#include <string>

#include <nccl.h>

// Internal: NCCL's functions, found when they are first asked for, so that programs start without the library.

namespace tandem::inline v0::parallel::nccl {

// There since 2.14, the first version whose communicators need not block.
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
  std::string problem{};  // why it can't be used; empty where it can
};

/// The process's one, looked for at the first call. It is never unloaded.
const Library& loaded();
/// Its functions. Only where it has no problem.
inline const Functions& api() { return loaded().functions; }

}  // namespace tandem::inline v0::parallel::nccl

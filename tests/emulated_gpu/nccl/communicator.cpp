#include <algorithm>
#include <cstring>

#include "clique.h"

// Communicators: creation and end.

using emulated_nccl::Trouble;
using emulated_nccl::detail::Clique;
using emulated_nccl::detail::State;

namespace {

constexpr int kQueries = 2;  // number of queries until an operation is done

using Lock = std::unique_lock<std::mutex>;

}  // namespace

namespace emulated_nccl {

detail::State& detail::State::get() {
  static auto* state = new State;
  return *state;
}

void set_trouble(Trouble trouble) {
  State& state = State::get();
  {
    const Lock lock(state.mutex);
    state.trouble = trouble;
  }
  state.changed.notify_all();
}

Counts counts() {
  State& state = State::get();
  const Lock lock(state.mutex);
  return state.counts;
}

}  // namespace emulated_nccl

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclSystemError: return "unhandled system error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "internal error";
  }
}

const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  State& state = State::get();
  const Lock lock(state.mutex);
  *id = {};
  const int number = ++state.last_id;
  std::memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config == nullptr || config->blocking != 0 || rank < 0 || rank >= size) {
    return ncclInvalidArgument;
  }
  int device = 0;
  cudaGetDevice(&device);
  State& state = State::get();
  const Lock lock(state.mutex);
  int number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  std::shared_ptr<Clique>& clique = state.cliques[number];
  if (clique == nullptr) {
    clique = std::make_shared<Clique>();
    clique->size = size;
  }
  clique->twice_on_one_gpu |=
      std::find(clique->devices.begin(), clique->devices.end(), device) != clique->devices.end();
  clique->devices.push_back(device);
  ++clique->joined;
  ++state.counts.joined;
  *comm = new ncclComm{.clique = clique, .rank = rank, .device = device, .unsettled = kQueries};
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  State& state = State::get();
  const Lock lock(state.mutex);
  state.counts.misuses += comm->inside || *comm->aborted ? 1 : 0;
  const Clique& clique = *comm->clique;
  const bool here = clique.joined == clique.size && state.trouble != Trouble::join_hangs;
  if (clique.twice_on_one_gpu) {
    *error = ncclInvalidUsage;
  } else if (comm->error != ncclSuccess) {
    *error = comm->error;
  } else {
    *error = !here || comm->unsettled-- > 0 ? ncclInProgress : ncclSuccess;
    comm->unsettled = std::max(comm->unsettled, 0);
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Lock lock(State::get().mutex);
  comm->unsettled = kQueries;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  State& state = State::get();
  const Lock lock(state.mutex);
  state.counts.misuses += comm->error != ncclSuccess ? 1 : 0;  // the real call may block
  ++state.counts.destroyed;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  State& state = State::get();
  Lock lock(state.mutex);
  state.counts.misuses += comm->inside ? 1 : 0;
  *comm->aborted = true;
  ++state.counts.aborted;
  state.changed.wait(lock, [&] { return state.trouble != Trouble::abort_hangs; });
  delete comm;
  return ncclSuccess;
}

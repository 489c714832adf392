#include <functional>
#include <utility>
#include <vector>

#include "clique.h"
#include "emulated_gpu.h"

// Collectives. Each is a kernel on every rank's stream that waits for those of the other ranks.

using emulated_nccl::Trouble;
using emulated_nccl::detail::carry_out;
using emulated_nccl::detail::Entry;
using emulated_nccl::detail::Kind;
using emulated_nccl::detail::Meeting;
using emulated_nccl::detail::Part;
using emulated_nccl::detail::State;

namespace {

using Lock = std::unique_lock<std::mutex>;

constexpr int kQueries = 2;

struct Group {
  int depth = 0;
  std::vector<Part> parts;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  ncclDataType_t type{};
};
thread_local Group group;

// `prototype` holds the values that must be the same on all ranks.
ncclResult_t queue(ncclComm_t comm, cudaStream_t stream, const Meeting& prototype, Entry entry) {
  State& state = State::get();
  std::shared_ptr<Meeting> meeting;
  {
    const Lock lock(state.mutex);
    if (comm->inside || *comm->aborted) {
      ++state.counts.misuses;
      return ncclInvalidUsage;
    }
    if (state.trouble == Trouble::call_fails) {
      comm->error = ncclSystemError;
      return ncclSystemError;
    }
    ++state.counts.collectives;
    std::shared_ptr<Meeting>& there = comm->clique->meetings[comm->calls++];
    if (there == nullptr) {
      there = std::make_shared<Meeting>(prototype);
      there->entries.resize(static_cast<std::size_t>(comm->clique->size));
    }
    meeting = there;
    meeting->hangs |= state.trouble == Trouble::collective_hangs || state.trouble == Trouble::abort_hangs;
    meeting->entries[static_cast<std::size_t>(comm->rank)] = std::move(entry);
    if (state.trouble == Trouble::async_error) {
      comm->error = ncclRemoteError;
      meeting->hangs = true;
    }
    comm->unsettled = kQueries;
    comm->inside = true;
  }
  const auto ready = [meeting, rank = static_cast<std::size_t>(comm->rank), aborted = comm->aborted] {
    const Lock lock(State::get().mutex);
    meeting->entries[rank].at_head = true;
    bool all = !meeting->hangs;
    for (const Entry& other : meeting->entries) {
      all = all && other.at_head;
    }
    return *aborted || meeting->done || all;
  };
  const auto run = [meeting, aborted = comm->aborted] {
    const Lock lock(State::get().mutex);
    if (!*aborted && !std::exchange(meeting->done, true)) {
      carry_out(*meeting);
    }
  };
  const cudaError_t error = emulated_gpu::enqueue_when(stream, "nccl", ready, run);
  const Lock lock(state.mutex);
  comm->inside = false;
  return error == cudaSuccess ? ncclInProgress : ncclUnhandledCudaError;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, ncclDataType_t type, const Part& part) {
  if (group.depth == 0 || part.peer < 0 || part.peer >= comm->clique->size) {
    return ncclInvalidUsage;
  }
  group.comm = comm;
  group.stream = stream;
  group.type = type;
  group.parts.push_back(part);
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--group.depth > 0 || group.parts.empty()) {
    return ncclSuccess;
  }
  const Group ended = std::exchange(group, {});
  Entry entry;
  entry.parts = ended.parts;
  return queue(ended.comm, ended.stream, {.kind = Kind::parts, .type = ended.type}, std::move(entry));
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return queue(comm, stream, {.kind = Kind::all_reduce, .type = type, .op = op},
               {.in = in, .out = out, .count = count});
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return queue(comm, stream, {.kind = Kind::reduce, .type = type, .op = op, .root = root},
               {.in = in, .out = out, .count = count});
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return queue(comm, stream, {.kind = Kind::broadcast, .type = type, .root = root},
               {.in = in, .out = out, .count = count});
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return queue(comm, stream, {.kind = Kind::all_gather, .type = type}, {.in = in, .out = out, .count = count});
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return queue(comm, stream, {.kind = Kind::reduce_scatter, .type = type, .op = op},
               {.in = in, .out = out, .count = count});
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream, type, {.sends = true, .peer = peer, .from = from, .to = nullptr, .count = count});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, type, {.sends = false, .peer = peer, .from = nullptr, .to = to, .count = count});
}

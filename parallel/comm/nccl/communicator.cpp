#include <tandem/parallel/comm/nccl/communicator.h>

#include <cstddef>
#include <future>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/cuda/runtime.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/comm/waiting.h>

namespace tandem::inline v0::parallel::nccl {

namespace {

using Clock = std::chrono::steady_clock;
using Kind = CollectiveKind;

std::string describe(ncclResult_t result) {
  const char* more = api().ncclGetLastError(nullptr);
  return fmt::format("NCCL: {}{}{}", api().ncclGetErrorString(result), more != nullptr && *more != '\0' ? ": " : "",
                     more != nullptr ? more : "");
}

bool is_failure(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

// The state of the calls that NCCL has begun.
ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = api().ncclCommGetAsyncError(comm, &state);
  return is_failure(asked) ? asked : state;
}

// Runs `work` on a thread of its own, because it may block forever. After `patience` the thread is abandoned.
template <class Work>
void do_patiently(const char* name, std::chrono::seconds patience, Work work) noexcept {
  try {
    std::packaged_task<void()> task(std::move(work));
    const std::future<void> done = task.get_future();
    std::thread thread(std::move(task));
    if (done.wait_for(patience) == std::future_status::ready) {
      thread.join();
      return;
    }
    thread.detach();
    core::warn(fmt::format("NCCL has not come back from {} within {} s; it is left alone with its thread", name,
                           patience.count()));
  } catch (const std::exception& error) {
    core::warn(fmt::format("{}: {}", name, error.what()));
  }
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    case DType::i64: return ncclInt64;
    case DType::i32: return ncclInt32;
    case DType::u8:
    case DType::boolean: break;
  }
  return ncclUint8;
}

// A bool is a byte that holds 0 or 1.
ncclRedOp_t op_of(ReduceOp op, DType dtype) {
  const bool boolean = dtype == DType::boolean;
  switch (op) {
    case ReduceOp::sum: return boolean ? ncclMax : ncclSum;
    case ReduceOp::avg: return ncclAvg;
    case ReduceOp::min: return ncclMin;
    case ReduceOp::max: return ncclMax;
    case ReduceOp::product: break;
  }
  return boolean ? ncclMin : ncclProd;
}

// Sends and receives parts of `buffers.numel` elements. A rank also sends to and receives from itself: NCCL copies that
// part.
ncclResult_t issue_parts(ncclComm_t comm, CUstream_st* stream, int rank, int size, const Collective& call,
                         const Buffers& buffers) {
  const ncclDataType_t type = type_of(call.dtype);
  const auto count = static_cast<std::size_t>(buffers.numel);
  const std::size_t bytes = count * item_size(call.dtype);
  ncclResult_t result = ncclSuccess;
  const auto send = [&](int part, int to) {
    if (!is_failure(result)) {
      const auto* from = static_cast<const std::byte*>(buffers.in) + static_cast<std::size_t>(part) * bytes;
      result = api().ncclSend(from, count, type, to, comm, stream);
    }
  };
  const auto receive = [&](int part, int from) {
    if (!is_failure(result)) {
      auto* const to = static_cast<std::byte*>(buffers.out) + static_cast<std::size_t>(part) * bytes;
      result = api().ncclRecv(to, count, type, from, comm, stream);
    }
  };
  if (call.kind == Kind::gather) {
    send(0, call.root);
  } else if (call.kind == Kind::scatter) {
    receive(0, call.root);
  }
  for (int r = 0; r < size; ++r) {
    if (call.kind == Kind::all_to_all || (call.kind == Kind::scatter && rank == call.root)) {
      send(r, r);
    }
    if (call.kind == Kind::all_to_all || (call.kind == Kind::gather && rank == call.root)) {
      receive(r, r);
    }
  }
  return result;
}

// Queues the NCCL calls of a rank. Returns the first failure.
ncclResult_t issue(ncclComm_t comm, CUstream_st* stream, int rank, int size, const Collective& call,
                   const Buffers& buffers) {
  const Functions& nccl = api();
  const auto count = static_cast<std::size_t>(buffers.numel);
  const ncclDataType_t type = type_of(call.dtype);
  const ncclRedOp_t op = op_of(call.op, call.dtype);
  switch (call.kind) {
    case Kind::all_reduce: return nccl.ncclAllReduce(buffers.in, buffers.out, count, type, op, comm, stream);
    case Kind::reduce: return nccl.ncclReduce(buffers.in, buffers.out, count, type, op, call.root, comm, stream);
    case Kind::broadcast: {
      void* const memory = rank == call.root ? const_cast<void*>(buffers.in) : buffers.out;
      return nccl.ncclBroadcast(memory, memory, count, type, call.root, comm, stream);
    }
    case Kind::all_gather: return nccl.ncclAllGather(buffers.in, buffers.out, count, type, comm, stream);
    case Kind::reduce_scatter: return nccl.ncclReduceScatter(buffers.in, buffers.out, count, type, op, comm, stream);
    case Kind::gather:
    case Kind::scatter:
    case Kind::all_to_all: return issue_parts(comm, stream, rank, size, call, buffers);
    case Kind::send:
    case Kind::recv:
    case Kind::barrier:
    case Kind::new_group: break;
  }
  return ncclInvalidUsage;  // this kind never goes to NCCL
}

}  // namespace

void Communicator::join(const ncclUniqueId& id, Check check) {
  const cuda::GpuScope scope(gpu_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  {
    const std::lock_guard lock(mutex_);
    if (const auto result = api().ncclCommInitRankConfig(&comm_, size_, id, rank_, &config); is_failure(result)) {
      throw NcclFailure(describe(result));
    }
  }
  settle(check);
}

void Communicator::run(const Collective& call, const Buffers& buffers, CUstream_st* stream, Check check) {
  const cuda::GpuScope scope(gpu_);
  inside([&](ncclComm_t comm) {
    const ncclResult_t started = api().ncclGroupStart();
    if (is_failure(started)) {
      return started;
    }
    const ncclResult_t called = issue(comm, stream, rank_, size_, call, buffers);
    const ncclResult_t ended = api().ncclGroupEnd();
    return is_failure(called) ? called : ended;
  });
  settle(check);
}

// Waits until NCCL has finished on the host what it began.
void Communicator::settle(Check check) {
  poll_until(Clock::time_point::max(), [&] {
    check();
    return inside([](ncclComm_t comm) { return state_of(comm); }) == ncclSuccess;
  });
}

// Throws NcclFailure if `calls` fail, or if the communicator is gone.
ncclResult_t Communicator::inside(Calls calls) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) {
    throw NcclFailure("NCCL: the communicator has been ended");
  }
  const ncclResult_t result = calls(comm_);
  if (is_failure(result)) {
    throw NcclFailure(describe(result));
  }
  return result;
}

std::optional<std::string> Communicator::trouble() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const ncclResult_t state = lock.owns_lock() && comm_ != nullptr ? state_of(comm_) : ncclSuccess;
  return is_failure(state) ? std::optional(describe(state)) : std::nullopt;
}

// Takes the communicator out. Returns null if it is gone already, or if another thread does not come back from an NCCL
// call.
ncclComm_t Communicator::take() noexcept {
  const std::unique_lock lock(mutex_, kPatience);
  if (!lock.owns_lock()) {
    core::warn("NCCL: a call that must not block has not come back; the communicator cannot be ended");
    return nullptr;
  }
  return std::exchange(comm_, nullptr);
}

void Communicator::abort() noexcept {
  if (ncclComm_t comm = take(); comm != nullptr) {
    do_patiently("ncclCommAbort", kPatience, [comm, gpu = gpu_] {
      const cuda::GpuScope scope(gpu);
      api().ncclCommAbort(comm);
    });
  }
}

void Communicator::leave() noexcept {
  if (ncclComm_t comm = take(); comm != nullptr) {
    do_patiently("ncclCommDestroy", 2 * kPatience, [comm, gpu = gpu_] {
      const cuda::GpuScope scope(gpu);
      ncclResult_t state = api().ncclCommFinalize(comm);
      poll_until(Clock::now() + kPatience, [&] {
        if (!is_failure(state)) {
          state = state_of(comm);
        }
        return state != ncclInProgress;
      });
      state == ncclSuccess ? api().ncclCommDestroy(comm) : api().ncclCommAbort(comm);
    });
  }
}

}  // namespace tandem::inline v0::parallel::nccl

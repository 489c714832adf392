#include <tandem/parallel/comm/nccl/communicator.h>

#include <future>
#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/cuda/runtime.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/comm/poll.h>

namespace tandem::inline v0::parallel::nccl {

namespace {

using Clock = std::chrono::steady_clock;

std::string describe(ncclResult_t result) {
  const char* more = api().ncclGetLastError(nullptr);
  return fmt::format("NCCL: {}{}{}", api().ncclGetErrorString(result), more != nullptr && *more != '\0' ? ": " : "",
                     more != nullptr ? more : "");
}

bool is_failure(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

// `work` may block for ever: it has a thread of its own, which is left behind then.
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

}  // namespace

void Communicator::join(const ncclUniqueId& id, int rank, int size, Check check) {
  const cuda::GpuScope scope(gpu_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    result = api().ncclCommInitRankConfig(&comm_, size, id, rank, &config);
  }
  settle(result, check);
}

void Communicator::run(Calls calls, Check check) {
  const cuda::GpuScope scope(gpu_);
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) {
      throw NcclFailure("NCCL: the communicator has been ended");
    }
    result = api().ncclGroupStart();
    if (!is_failure(result)) {
      const ncclResult_t called = calls(api(), comm_);
      const ncclResult_t ended = api().ncclGroupEnd();
      result = is_failure(called) ? called : ended;
    }
  }
  settle(result, check);
}

// Until NCCL has done on the host what it began.
void Communicator::settle(ncclResult_t result, Check check) {
  if (is_failure(result)) {
    throw NcclFailure(describe(result));
  }
  poll_until(Clock::time_point::max(), [&] {
    check();
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) {
      throw NcclFailure("NCCL: the communicator has been ended");
    }
    ncclResult_t state = ncclSuccess;
    if (const ncclResult_t asked = api().ncclCommGetAsyncError(comm_, &state); is_failure(asked)) {
      state = asked;
    }
    if (is_failure(state)) {
      throw NcclFailure(describe(state));
    }
    return state == ncclSuccess;
  });
}

std::optional<std::string> Communicator::trouble() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  ncclResult_t state = ncclSuccess;
  if (lock.owns_lock() && comm_ != nullptr) {
    if (const ncclResult_t asked = api().ncclCommGetAsyncError(comm_, &state); is_failure(asked)) {
      state = asked;
    }
  }
  return is_failure(state) ? std::optional(describe(state)) : std::nullopt;
}

// Null if it is gone, or a thread does not come back from it.
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
          api().ncclCommGetAsyncError(comm, &state);
        }
        return state != ncclInProgress;
      });
      state == ncclSuccess ? api().ncclCommDestroy(comm) : api().ncclCommAbort(comm);
    });
  }
}

}  // namespace tandem::inline v0::parallel::nccl

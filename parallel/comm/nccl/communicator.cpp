#include <tandem/parallel/comm/nccl/communicator.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/comm/waiting.h>

namespace tandem::inline v0::parallel::nccl {

namespace {

using Clock = std::chrono::steady_clock;

std::string describe(ncclResult_t result) {
  const char* more = api().ncclGetLastError(nullptr);
  return fmt::format("NCCL: {}{}{}", api().ncclGetErrorString(result), more != nullptr && *more != '\0' ? ": " : "",
                     more != nullptr ? more : "");
}

bool is_failure(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

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

// Which GPU of the world a rank has, and whether it can begin.
struct Card {
  std::array<char, 40> host;  // of one start of one machine
  std::array<int, 3> place;   // on its PCI buses
  int device;
  std::array<char, 160> problem;
  ncclUniqueId id;  // of rank 0
};

template <std::size_t kSize>
void write(std::array<char, kSize>& to, std::string_view text) {
  std::copy_n(text.begin(), std::min(text.size(), kSize - 1), to.begin());
}

std::string boot_id() {
  std::string name;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), name);
  return name;
}

// Ways of telling NCCL that ranks may share a GPU; whether they can, it decides itself.
bool may_share() {
  return std::getenv("NCCL_HOSTID") != nullptr || std::getenv("NCCL_MULTI_RANK_GPU_ENABLE") != nullptr;
}

Card own_card(int rank, Device gpu) {
  Card card{};
  write(card.problem, loaded().problem);
  if (!loaded().problem.empty()) {
    return card;
  }
  write(card.host, boot_id());
  card.device = gpu.index;
  const cudaDeviceAttr attributes[] = {cudaDevAttrPciDomainId, cudaDevAttrPciBusId, cudaDevAttrPciDeviceId};
  for (std::size_t i = 0; i < card.place.size(); ++i) {
    cuda::require(cudaDeviceGetAttribute(&card.place[i], attributes[i], gpu.index), "cudaDeviceGetAttribute");
  }
  if (rank == 0) {
    if (const ncclResult_t result = api().ncclGetUniqueId(&card.id); result != ncclSuccess) {
      write(card.problem, fmt::format("ncclGetUniqueId: {}", api().ncclGetErrorString(result)));
    }
  }
  return card;
}

}  // namespace

ncclUniqueId agree_on_id(Backend& base, Device gpu, const CallTime& time) {
  const Card own = own_card(base.rank(), gpu);
  std::vector<Card> cards(static_cast<std::size_t>(base.size()), own);
  if (base.size() > 1) {
    constexpr std::int64_t kBytes = sizeof(Card);
    const Collective call{.kind = CollectiveKind::all_gather, .dtype = DType::u8, .shape = {kBytes}};
    base.run(call, {&own, cards.data(), kBytes}, time);
  }
  for (std::size_t r = 0; r < cards.size(); ++r) {
    check<ConfigError>(cards[r].problem[0] == '\0',
                       "nccl_backend: rank {} cannot use NCCL: {}; tensors of GPUs can go by Gloo, through page-locked "
                       "memory",
                       r, cards[r].problem.data());
    for (std::size_t other = 0; other < r && !may_share(); ++other) {
      check<ConfigError>(
          cards[r].host != cards[other].host || cards[r].place != cards[other].place,
          "nccl_backend: ranks {} and {} are both on cuda:{} of one machine, and NCCL takes one rank of a "
          "group per GPU; give each rank a GPU of its own, or take Gloo, whose ranks may share one",
          other, r, cards[r].device);
    }
  }
  return cards.front().id;
}

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

// Waits until NCCL has finished on the host what it began.
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
          api().ncclCommGetAsyncError(comm, &state);
        }
        return state != ncclInProgress;
      });
      state == ncclSuccess ? api().ncclCommDestroy(comm) : api().ncclCommAbort(comm);
    });
  }
}

}  // namespace tandem::inline v0::parallel::nccl

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/cuda/ordered_mutex.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/core/system_limits.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/nccl/communicator.h>
#include <tandem/parallel/comm/nccl/nccl.h>

namespace tandem::inline v0::parallel {

namespace {

using Clock = std::chrono::steady_clock;
using Kind = CollectiveKind;

// Intervals between checks of the GPU: normally, and while the destructor waits for it.
constexpr auto kNcclLook = std::chrono::milliseconds(50);
constexpr auto kLastLook = std::chrono::milliseconds(1);

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
  write(card.problem, nccl::loaded().problem);
  if (!nccl::loaded().problem.empty()) {
    return card;
  }
  write(card.host, boot_id());
  card.device = gpu.index;
  const cudaDeviceAttr attributes[] = {cudaDevAttrPciDomainId, cudaDevAttrPciBusId, cudaDevAttrPciDeviceId};
  for (std::size_t i = 0; i < card.place.size(); ++i) {
    cuda::require(cudaDeviceGetAttribute(&card.place[i], attributes[i], gpu.index), "cudaDeviceGetAttribute");
  }
  if (rank == 0) {
    if (const ncclResult_t result = nccl::api().ncclGetUniqueId(&card.id); result != ncclSuccess) {
      write(card.problem, fmt::format("ncclGetUniqueId: {}", nccl::api().ncclGetErrorString(result)));
    }
  }
  return card;
}

// Rank 0's id for a new communicator, on every rank of `base`. The ranks have met already, so they exchange the id by
// an all-gather of `base`, with its deadline and its errors. Throws ConfigError on all ranks if one has no NCCL, or if
// two share a GPU, which NCCL refuses.
ncclUniqueId agree_on_id(Backend& base, Device gpu, const CallTime& time) {
  const Card own = own_card(base.rank(), gpu);
  std::vector<Card> cards(static_cast<std::size_t>(base.size()), own);
  if (base.size() > 1) {
    constexpr std::int64_t kBytes = sizeof(Card);
    const Collective call{.kind = Kind::all_gather, .dtype = DType::u8, .shape = {kBytes}};
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

class NcclBackend final : public Backend {
 public:
  NcclBackend(std::unique_ptr<Backend> base, Device gpu, const NcclOptions& options);
  ~NcclBackend() override;

  std::string_view name() const noexcept override { return "nccl"; }
  int rank() const noexcept override { return base_->rank(); }
  int size() const noexcept override { return base_->size(); }
  std::optional<Device> gpu() const override { return gpu_; }
  std::string refusal(const Collective& call) const override { return goes_by_nccl(call) ? "" : base_->refusal(call); }
  void exchange(const Collective& mine, std::span<Collective> all, const CallTime& time) override {
    base_->exchange(mine, all, time);
  }
  void run(const Collective& call, const Buffers& buffers, const CallTime& time) override {
    goes_by_nccl(call) ? run_by_nccl(call, buffers, time) : base_->run(call, buffers, time);
  }
  std::unique_ptr<Backend> split(std::span<const int> members, const CallTime& time) override;
  bool await_message(const Collective& call, const CallTime& time) override { return base_->await_message(call, time); }
  void interrupt() noexcept override { base_->interrupt(); }
  void abort(const CommError& cause) noexcept override { fail(cause); }
  std::optional<CommError> failure() const override;

 private:
  // A call that the GPU was given and that is not known to have finished.
  struct Flight {
    Collective call;
    CallTime time;
    cuda::Event end;
  };

  static bool goes_by_nccl(const Collective& call) {
    return call.device == DeviceType::cuda && call.kind != Kind::send && call.kind != Kind::recv;
  }
  void join(const CallTime& time);
  void run_by_nccl(const Collective& call, const Buffers& buffers, const CallTime& time);
  void check_on(const Collective& call, const CallTime& time) const;
  void take_off(const Collective& call, const CallTime& time);
  void fail(const CommError& cause) noexcept;
  void watch();
  std::optional<CommError> look();

  std::unique_ptr<Backend> base_;
  const Device gpu_;
  const NcclOptions options_;
  nccl::Communicator communicator_;
  mutable cuda::OrderedMutex<cuda::LockPlace::nccl_backend> mutex_;  // guards the members below
  std::condition_variable_any changed_;
  std::deque<Flight> flights_;
  std::vector<cuda::Event> events_;  // of finished flights, to be reused
  std::optional<CommError> failure_;
  bool closing_ = false;
  std::thread watchdog_;
};

NcclBackend::NcclBackend(std::unique_ptr<Backend> base, Device gpu, const NcclOptions& options)
    : Backend(base->names()),
      base_(std::move(base)),
      gpu_(gpu),
      options_(options),
      communicator_(gpu.index, base_->rank(), base_->size()) {
  const Clock::time_point now = Clock::now();
  join({.start = now, .deadline = now + options.timeout, .names = names().get()});
  watchdog_ = core::start_thread("the watch over NCCL", [this] { watch(); });
}

void NcclBackend::join(const CallTime& time) {
  const Collective call{.kind = Kind::new_group, .device = DeviceType::cuda, .shape = {}};
  const ncclUniqueId id = agree_on_id(*base_, gpu_, time);
  try {
    communicator_.join(id, [&] { check_on(call, time); });
  } catch (const CommError& error) {
    fail(error);
    throw;
  } catch (const nccl::NcclFailure& failure) {
    const CommError error = failed_rank_error(rank(), failure.what(), call, time);
    fail(error);
    throw CommError(error);
  }
}

// Waits for queued calls, up to their deadlines.
NcclBackend::~NcclBackend() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  watchdog_.join();
  failure() ? communicator_.abort() : communicator_.leave();
}

std::unique_ptr<Backend> NcclBackend::split(std::span<const int> members, const CallTime& time) {
  std::unique_ptr<Backend> base = base_->split(members, time);
  return base ? std::make_unique<NcclBackend>(std::move(base), gpu_, options_) : nullptr;
}

void NcclBackend::run_by_nccl(const Collective& call, const Buffers& buffers, const CallTime& time) {
  check_on(call, time);
  if (buffers.numel == 0) {
    return;
  }
  const cuda::Stream stream = cuda::current_stream(gpu_);
  cuda::note_launch("nccl");
  try {
    communicator_.run(call, buffers, stream.handle(), [&] { check_on(call, time); });
  } catch (const nccl::NcclFailure& failure) {
    check_on(call, time);  // throws first if another rank failed earlier
    throw failed_rank_error(rank(), failure.what(), call, time);
  }
  take_off(call, time);
}

// Throws if the group has ended or the call's deadline has passed.
void NcclBackend::check_on(const Collective& call, const CallTime& time) const {
  if (const std::optional<CommError> cause = failure()) {
    throw CommError(*cause);
  }
  if (Clock::now() > time.deadline) {
    throw late_gpu_error(-1, gpu_, call, time);
  }
}

void NcclBackend::take_off(const Collective& call, const CallTime& time) {
  const cuda::Stream stream = cuda::current_stream(gpu_);
  {
    const std::lock_guard lock(mutex_);
    if (events_.empty()) {
      events_.emplace_back(gpu_);
    }
    flights_.push_back({call, time, events_.back()});
    events_.pop_back();
    flights_.back().end.record(stream);
  }
  changed_.notify_all();
}

std::optional<CommError> NcclBackend::failure() const {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      return failure_;
    }
  }
  return base_->failure();
}

// Records the failure, aborts `base_` and wakes the watchdog, which ends NCCL's work. The caller may be any thread and
// must not wait.
void NcclBackend::fail(const CommError& cause) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ = cause;
    }
  }
  base_->abort(cause);
  changed_.notify_all();
}

void NcclBackend::watch() {
  std::unique_lock lock(mutex_);
  while (!closing_ || !flights_.empty()) {
    const bool closing = closing_;
    const auto has_news = [&] { return closing_ != closing || failure_.has_value(); };
    if (flights_.empty()) {
      changed_.wait(lock, [&] { return has_news() || !flights_.empty(); });
    } else {
      changed_.wait_for(lock, closing ? kLastLook : kNcclLook, has_news);
    }
    lock.unlock();
    const std::optional<CommError> cause = look();
    if (cause) {
      fail(*cause);
      communicator_.abort();
    }
    lock.lock();
    if (cause) {
      flights_.clear();
      changed_.wait(lock, [&] { return closing_; });
    }
  }
}

// Returns the error that ends the group, if any.
std::optional<CommError> NcclBackend::look() {
  if (std::optional<CommError> cause = failure()) {
    return cause;
  }
  std::unique_lock lock(mutex_);
  try {
    for (; !flights_.empty() && flights_.front().end.query(); flights_.pop_front()) {
      events_.push_back(flights_.front().end);
    }
  } catch (const Error& error) {
    return failed_rank_error(rank(), error.what(), flights_.front().call, flights_.front().time);
  }
  if (flights_.empty()) {
    return std::nullopt;
  }
  const Flight& first = flights_.front();
  if (const std::optional<std::string> trouble = communicator_.trouble()) {
    return failed_rank_error(rank(), *trouble, first.call, first.time);
  }
  const Clock::time_point now = Clock::now();
  if (now > first.time.deadline) {
    return late_gpu_error(-1, gpu_, first.call, first.time);
  }
  if (now > first.time.line_due) {
    first.time.put_off_line(now);
    const Collective call = first.call;
    const CallTime time = first.time;
    lock.unlock();
    tell_long_wait(rank(), {}, call, time);
  }
  return std::nullopt;
}

}  // namespace

std::string why_nccl_is_unavailable() { return nccl::loaded().problem; }

std::unique_ptr<Backend> nccl_backend(std::unique_ptr<Backend> base, Device device, const NcclOptions& options) {
  check<DeviceError>(device.type == DeviceType::cuda, "nccl_backend: {} is not a GPU", device);
  check<ConfigError>(options.timeout.count() > 0, "nccl_backend: a timeout of {} ms; it must be more than 0",
                     options.timeout.count());
  require_available(device);
  return std::make_unique<NcclBackend>(staged_backend(std::move(base)), device, options);
}

}  // namespace tandem::inline v0::parallel

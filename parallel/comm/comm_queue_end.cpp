#include <chrono>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/step_times.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/poll.h>

// The end of a queue: with its group, or after a failure.

namespace tandem::inline v0::parallel::detail {

namespace {

using Clock = std::chrono::steady_clock;

// Time for a backend to end calls that have passed their deadline.
constexpr auto kGrace = std::chrono::seconds(2);

}  // namespace

void CommQueue::die(const CommError& cause) {
  {
    const Lock lock(mutex_);
    if (!cause_) {
      cause_ = cause;
    }
  }
  backend_->abort(cause);
}

void CommQueue::abort(std::string_view reason) {
  if (is_closed()) {
    return;
  }
  die(aborted_error(backend_->rank(), reason));
  const Lock lock(mutex_);
  told_ = true;  // the caller of abort() knows the cause
}

void CommQueue::drain(Lock& lock) {
  while (first_ || working_) {
    if (working_) {
      done_.wait(lock);
    } else {
      work(lock, nullptr);
    }
  }
}

// Blocks the host until the GPU has finished the group's streams.
void CommQueue::finish_streams(Lock& lock) {
  if (streams_.empty()) {
    return;
  }
  const auto streams = streams_;
  const auto limit = timeout_;
  lock.unlock();
  std::optional<CommError> error;
  try {
    for (const auto& [gpu, stream] : streams) {
      const cuda::Event end = stream.record_event();
      check<DeviceError>(poll_until(Clock::now() + limit + kGrace, [&] { return end.query(); }),
                         "cuda:{} is not through with what the group has queued within {} ms", gpu, limit.count());
    }
    error = backend_->failure();
  } catch (const Error& late) {
    error = CommError(fmt::format("process group: failed on rank {}: {}", backend_->rank(), late.what()),
                      {.fault = CommFault::timeout, .rank = backend_->rank()});
  }
  lock.lock();
  if (!cause_) {
    cause_ = error;
  }
}

void CommQueue::wait_all() {
  const PhaseScope timed(Phase::collective);
  Lock lock(mutex_);
  drain(lock);
  finish_streams(lock);
  if (cause_ && !std::exchange(told_, true)) {
    throw CommError(*cause_);
  }
}

void CommQueue::close(bool unwinding) noexcept {
  Lock lock(mutex_);
  if (closed_) {
    return;
  }
  if (unwinding && !cause_) {
    lock.unlock();
    die(CommError(fmt::format("process group: rank {} is lost: it left its work by an exception", backend_->rank()),
                  {.fault = CommFault::peer_lost, .rank = backend_->rank()}));
    lock.lock();
    told_ = true;  // the caller has seen that exception
  }
  drain(lock);
  finish_streams(lock);
  closed_ = true;
  const std::string untold = cause_ && !told_ ? cause_->what() : "";
  if (!cause_) {
    cause_ = CommError("it was destroyed", {.fault = CommFault::aborted, .rank = backend_->rank()});
  }
  lock.unlock();
  due_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  }
  if (!untold.empty()) {
    core::warn(
        fmt::format("a process group of rank {} was destroyed, and nobody had waited for the call that failed: {}",
                    backend_->rank(), untold));
  }
  // A remaining Work or plan keeps the queue alive, but must not keep its connections open.
  backend_.reset();
}

}  // namespace tandem::inline v0::parallel::detail

#include <tandem/parallel/comm/comm_queue.h>

#include <algorithm>
#include <exception>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/step_times.h>
#include <tandem/core/thread_state.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/short_slice.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel::detail {

using Clock = std::chrono::steady_clock;

namespace {

// The GPU prefers this stream over computation, which usually has more work than fits on the GPU.
constexpr int kPriority = -1;

bool is_counted(CollectiveKind kind) { return kind != CollectiveKind::send && kind != CollectiveKind::recv; }

// While this object lives, this thread's work on the GPU belongs to an operation: it runs on the group's stream, after
// everything that the caller's stream held at the call.
class OnGroupStream {
 public:
  OnGroupStream(Operation& operation, cuda::Stream stream) : operation_(operation), scope_(std::move(stream)) {
    scope_.stream().wait_event(operation.gpu->called);
    for (const View* view : {&operation.in, &operation.out}) {
      if (view->defined()) {
        view->storage->note_stream();
      }
    }
  }
  ~OnGroupStream() {
    try {
      operation_.gpu->ended.record(scope_.stream());
    } catch (const Error&) {
      // The GPU is lost. Every later use of it throws.
    }
  }
  OnGroupStream(const OnGroupStream&) = delete;
  OnGroupStream& operator=(const OnGroupStream&) = delete;

 private:
  Operation& operation_;
  cuda::StreamScope scope_;
};

}  // namespace

CommQueue::CommQueue(std::unique_ptr<Backend> backend)
    : backend_(std::move(backend)), calls_(static_cast<std::size_t>(backend_->size())) {}

CommQueue::~CommQueue() { close(false); }

std::chrono::milliseconds CommQueue::timeout() {
  const Lock lock(mutex_);
  return timeout_;
}

void CommQueue::set_timeout(std::chrono::milliseconds timeout) {
  const Lock lock(mutex_);
  timeout_ = timeout;
}

void CommQueue::append(const std::shared_ptr<Operation>& operation) {
  Operation& added = *operation;
  if (added.pending) {
    fail<ConfigError>("{}: started again before it was waited for", to_string(added.call));
  }
  added.call.sequence = is_counted(added.call.kind) ? sequence_ : -1;
  if (cause_) {
    told_ = true;
    throw dead_group_error(*cause_, added.call);
  }
  if (added.gpu) {
    added.gpu->called.record(cuda::current_stream(added.buffers.device));
  }
  sequence_ += is_counted(added.call.kind) ? 1 : 0;
  added.time = {Clock::now(), {}, false};
  added.time.deadline = added.time.start + timeout_;
  added.pending = true;
  added.error.reset();
  (last_ != nullptr ? last_->next : first_) = operation;
  last_ = &added;
  if (receiving_ && added.call.kind == CollectiveKind::send) {
    backend_->interrupt();
  }
}

void CommQueue::start(const std::shared_ptr<Operation>& operation) {
  {
    const Lock lock(mutex_);
    append(operation);
    if (!thread_.joinable()) {
      // Do not carry over scope, frame and observer, which are on the caller's stack.
      const core::ThreadState& caller = core::thread_state();
      const core::ThreadState carried{.device = caller.device, .grad_enabled = false, .rank = caller.rank};
      thread_ = std::thread([this, carried] {
        const core::ThreadStateScope scope(carried);
        const ShortSlice while_others_compute;
        serve();
      });
    }
  }
  due_.notify_one();
}

void CommQueue::run(const std::shared_ptr<Operation>& operation) {
  const PhaseScope timed(Phase::collective);
  Lock lock(mutex_);
  append(operation);
  finish(lock, *operation);
}

void CommQueue::wait(Operation& operation) {
  const PhaseScope timed(Phase::collective);
  Lock lock(mutex_);
  finish(lock, operation);
}

bool CommQueue::is_done(const Operation& operation) {
  const Lock lock(mutex_);
  return !operation.pending && (!operation.gpu || operation.gpu->ended.query());
}

cuda::Stream CommQueue::stream_of(Device gpu) {
  const Lock lock(mutex_);
  const auto found = streams_.find(gpu.index);
  return found != streams_.end() ? found->second : streams_.try_emplace(gpu.index, gpu, kPriority).first->second;
}

bool CommQueue::is_dead() {
  const Lock lock(mutex_);
  return cause_.has_value();
}

bool CommQueue::is_closed() {
  const Lock lock(mutex_);
  return closed_;
}

// Every wait here ends, because running operations have deadlines.
void CommQueue::finish(Lock& lock, Operation& operation) {
  while (operation.pending) {
    if (working_) {
      done_.wait(lock);
    } else {
      work(lock, &operation);
    }
  }
  if (operation.gpu) {
    cuda::current_stream(operation.buffers.device).wait_event(operation.gpu->ended);
  }
  std::optional<CommError> error = operation.error;
  if (!error && operation.gpu && !closed_) {
    error = backend_->failure();
  }
  if (error) {
    cause_ = cause_ ? cause_ : error;
    told_ = true;
    throw CommError(*error);
  }
}

// Takes the next operation off the queue. Returns null if the caller should look again, because a send may have been
// queued.
std::shared_ptr<Operation> CommQueue::take_next(Lock& lock) {
  Operation* before = nullptr;
  if (first_->call.kind == CollectiveKind::recv && !cause_) {
    for (before = first_.get(); before->next && before->next->call.kind == CollectiveKind::recv;) {
      before = before->next.get();
    }
    if (!before->next || before->next->call.kind != CollectiveKind::send) {
      before = nullptr;
      const Operation& receive = *first_;
      receiving_ = true;
      lock.unlock();
      const bool is_due = backend_->await_message(receive.call, receive.time);
      lock.lock();
      receiving_ = false;
      if (!is_due) {
        return nullptr;
      }
    }
  }
  std::shared_ptr<Operation>& place = before != nullptr ? before->next : first_;
  std::shared_ptr<Operation> taken = std::exchange(place, nullptr);
  place = std::move(taken->next);
  last_ = last_ == taken.get() ? before : last_;
  return taken;
}

// Runs queued operations until `until` is done; without `until`, until the queue is empty.
void CommQueue::work(Lock& lock, const Operation* until) {
  working_ = true;
  while (first_ && !(until != nullptr && !until->pending)) {
    first_->time.caller_waits = until != nullptr;
    const std::shared_ptr<Operation> operation = take_next(lock);
    if (!operation) {
      continue;
    }
    if (cause_) {
      operation->error = dead_group_error(*cause_, operation->call);
    } else {
      operation->time.caller_waits = until != nullptr;
      lock.unlock();
      perform(*operation);
      lock.lock();
    }
    operation->pending = false;
    done_.notify_all();
  }
  working_ = false;
  if (first_) {
    due_.notify_one();
  }
}

// Runs on the communication thread, or on the thread of a caller that waits.
void CommQueue::perform(Operation& operation) {
  try {
    try {
      if (operation.gpu) {
        const OnGroupStream on_stream(operation, stream_of(operation.buffers.device));
        carry_out(operation);
      } else {
        carry_out(operation);
      }
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& error) {
      throw failed_rank_error(backend_->rank(), error.what(), operation.call, operation.time);
    }
  } catch (const CommError& error) {
    operation.error = error;
    die(error);
  }
}

void CommQueue::carry_out(Operation& operation) {
  for (const Operation::Copy& copy : operation.before) {
    tandem::detail::copy(copy.to, copy.from);
  }
  if (operation.compared && backend_->size() > 1) {
    compare(operation);
  }
  if (operation.call.kind == CollectiveKind::new_group) {
    operation.split = backend_->split(operation.members, operation.time);
  } else if (operation.runs) {
    backend_->run(operation.call, operation.buffers, operation.time);
  }
  for (const Operation::Copy& copy : operation.after) {
    tandem::detail::copy(copy.to, copy.from);
  }
}

void CommQueue::compare(const Operation& operation) {
  if (!is_counted(operation.call.kind)) {
    return;
  }
  backend_->exchange(operation.call, calls_, operation.time);
  if (std::any_of(calls_.begin(), calls_.end(), [&](const auto& call) { return call != calls_.front(); })) {
    throw mismatch_error(calls_side_by_side(calls_), odd_one_out(calls_), operation.call, operation.time);
  }
}

void CommQueue::serve() {
  Lock lock(mutex_);
  while (!closed_) {
    due_.wait(lock, [&] { return closed_ || (first_ && !working_); });
    work(lock, nullptr);
  }
}

}  // namespace tandem::inline v0::parallel::detail

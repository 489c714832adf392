#include <tandem/parallel/comm/comm_queue.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/failpoint.h>
#include <tandem/core/span.h>
#include <tandem/core/system_limits.h>
#include <tandem/core/thread_state.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/comm/waiting.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel::detail {

using Clock = std::chrono::steady_clock;

namespace {

// Time for a backend to end calls that have passed their deadline.
constexpr auto kGrace = std::chrono::seconds(2);

// A wait gets a line after this time, and no sooner than after this many usual times.
constexpr auto kQuiet = std::chrono::seconds(5);
constexpr int kQuietTimes = 10;

// The GPU prefers this stream over computation, which usually has more work than fits on the GPU.
constexpr int kPriority = -1;

std::int64_t bytes_of(const Operation& operation) {
  return operation.buffers.numel * static_cast<std::int64_t>(item_size(operation.call.dtype));
}

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
    : backend_(std::move(backend)),
      names_(backend_->names()),
      rank_in_job_(names_->rank(backend_->rank())),
      calls_(static_cast<std::size_t>(backend_->size())) {}

CommQueue::~CommQueue() { close(false); }

void CommQueue::append(const std::shared_ptr<Operation>& operation, std::uint64_t flow) {
  Operation& added = *operation;
  if (added.pending) {
    fail<ConfigError>("{}: started again before it was waited for", names_->call(added.call));
  }
  added.call.sequence = is_counted(added.call.kind) ? sequence_ : -1;
  if (cause_) {
    told_ = true;
    throw dead_group_error(*cause_, added.call, *names_);
  }
  if (added.gpu) {
    added.gpu->called.record(cuda::current_stream(added.buffers.device));
  }
  queue_.push_back(operation);
  sequence_ += is_counted(added.call.kind) ? 1 : 0;
  const Clock::time_point now = Clock::now();
  added.time = {.start = now, .deadline = now + timeout(), .names = names_.get()};
  note_silence(added, now);
  added.flow = flow;
  added.pending = true;
  added.error.reset();
  if (receiving_ && added.call.kind == CollectiveKind::send) {
    backend_->interrupt();
  }
}

// From `begin` on the operation may wait for other ranks.
void CommQueue::note_silence(Operation& operation, Clock::time_point begin) const {
  operation.time.usual = usual_[static_cast<std::size_t>(operation.call.kind)];
  operation.time.line_due = begin + std::max<Clock::duration>(kQuiet, kQuietTimes * operation.time.usual);
}

// Counts a call that took `time`; recent calls count most.
void CommQueue::note_time(const Operation& operation, Clock::duration time) {
  if (!(operation.gpu && backend_->gpu())) {
    Clock::duration& usual = usual_[static_cast<std::size_t>(operation.call.kind)];
    usual = usual.count() == 0 ? time : (7 * usual + time) / 8;
  }
}

void CommQueue::start(const std::shared_ptr<Operation>& operation) {
  // The operation itself may be running: a plan can be started twice by mistake.
  const std::uint64_t flow = tandem::detail::has_span_listeners() ? core::new_flow() : 0;
  const SpanScope traced({.name = "start",
                          .detail = to_string(operation->call.kind),
                          .bytes = bytes_of(*operation),
                          .flow = flow,
                          .side = core::Span::Flow::begins});
  {
    const Lock lock(mutex_);
    append(operation, flow);
    if (!thread_.joinable()) {
      // Do not carry over scope, frame and observer, which are on the caller's stack.
      const core::ThreadState& caller = core::thread_state();
      const core::ThreadState carried{.device = caller.device, .grad_enabled = false, .rank = caller.rank};
      thread_ = core::start_thread("collectives", [this, carried] {
        const core::ThreadStateScope scope(carried);
        const ShortSlice while_others_compute;
        core::set_thread_purpose("exchange");
        serve();
      });
    }
  }
  due_.notify_one();
}

void CommQueue::run(const std::shared_ptr<Operation>& operation) {
  const SpanScope timed(Phase::collective);
  Lock lock(mutex_);
  append(operation, 0);
  finish(lock, *operation);
}

void CommQueue::wait(Operation& operation) {
  const SpanScope timed(Phase::collective);
  Lock lock(mutex_);
  finish(lock, operation);
}

bool CommQueue::is_done(const Operation& operation) {
  const Lock lock(mutex_);
  return !operation.pending && (!operation.gpu || operation.gpu->ended.query());
}

bool CommQueue::is_dead() {
  const Lock lock(mutex_);
  return cause_.has_value();
}

bool CommQueue::is_closed() {
  const Lock lock(mutex_);
  return closed_;
}

// Returns once `operation` is done, and throws its error.
void CommQueue::finish(Lock& lock, Operation& operation) {
  help(lock, &operation);
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

// Returns once `until` is done; without `until`, once the queue is empty and no operation runs. Every wait here ends,
// because running operations have deadlines.
void CommQueue::help(Lock& lock, const Operation* until) {
  while (until != nullptr ? until->pending : working_ || !queue_.empty()) {
    working_ ? done_.wait(lock) : work(lock, until);
  }
}

// Runs queued operations until `until` is done; without `until`, until the queue is empty.
void CommQueue::work(Lock& lock, const Operation* until) {
  working_ = true;
  while (!queue_.empty() && (until == nullptr || until->pending)) {
    queue_.front()->time.caller_waits = until != nullptr;
    const std::shared_ptr<Operation> operation = take_next(lock);
    if (!operation) {
      continue;
    }
    if (cause_) {
      operation->error = dead_group_error(*cause_, operation->call, *names_);
    } else {
      operation->time.caller_waits = until != nullptr;
      const Clock::time_point begin = Clock::now();
      note_silence(*operation, begin);
      lock.unlock();
      perform(*operation);
      lock.lock();
      note_time(*operation, Clock::now() - begin);
    }
    operation->pending = false;
    done_.notify_all();
  }
  working_ = false;
  if (!queue_.empty()) {
    due_.notify_one();
  }
}

// Takes the next operation off the queue: the first one, or a send with only recvs before it. Returns null if the
// caller should look again, because a send may have been queued while the first one, a recv, waited for its message.
std::shared_ptr<Operation> CommQueue::take_next(Lock& lock) {
  const auto is_recv = [](const auto& operation) { return operation->call.kind == CollectiveKind::recv; };
  auto next = queue_.begin();
  if (is_recv(*next) && !cause_) {
    next = std::find_if_not(queue_.begin(), queue_.end(), is_recv);
    if (next == queue_.end() || (*next)->call.kind != CollectiveKind::send) {
      const Operation& receive = *queue_.front();
      receiving_ = true;
      lock.unlock();
      const bool is_due = backend_->await_message(receive.call, receive.time);
      lock.lock();
      receiving_ = false;
      if (!is_due) {
        return nullptr;
      }
      next = queue_.begin();
    }
  }
  std::shared_ptr<Operation> taken = std::move(*next);
  queue_.erase(next);
  return taken;
}

// Runs on the communication thread, or on the thread of a caller that waits.
void CommQueue::perform(Operation& operation) {
  const bool launches = operation.gpu && backend_->gpu();  // and does not wait for the GPU
  const SpanScope traced({.name = launches ? "launch" : to_string(operation.call.kind),
                          .detail = launches ? to_string(operation.call.kind) : "",
                          .bytes = bytes_of(operation),
                          .flow = operation.flow,
                          .side = operation.flow != 0 ? core::Span::Flow::goes_on : core::Span::Flow::none});
  operation.flow = 0;
  try {
    std::optional<OnGroupStream> on_stream;
    if (operation.gpu) {
      const Device gpu = operation.buffers.device;
      on_stream.emplace(operation, streams_.try_emplace(gpu.index, gpu, kPriority).first->second);
    }
    carry_out(operation);
  } catch (const CommError& error) {
    operation.error = error;
  } catch (const std::exception& error) {
    operation.error = failed_rank_error(backend_->rank(), core::explain(error), operation.call, operation.time);
  }
  if (operation.error) {
    die(*operation.error, false);
  }
}

void CommQueue::carry_out(Operation& operation) {
  const Collective& call = operation.call;
  // The caller has asked them. One of them might wait for a call that is queued behind this one.
  const tandem::detail::UnguardedScope unguarded;
  for (const Operation::Copy& copy : operation.before) {
    tandem::detail::copy(copy.to, copy.from);
  }
  if (operation.compared && backend_->size() > 1 && is_counted(call.kind)) {
    backend_->exchange(call, calls_, operation.time);
    if (std::any_of(calls_.begin(), calls_.end(), [&](const auto& other) { return other != call; })) {
      throw mismatch_error(calls_, call, operation.time);
    }
  }
  core::failpoint("collective");
  if (call.kind == CollectiveKind::new_group) {
    operation.split = backend_->split(operation.members, operation.time);
  } else if (operation.runs) {
    backend_->run(call, operation.buffers, operation.time);
  }
  for (const Operation::Copy& copy : operation.after) {
    tandem::detail::copy(copy.to, copy.from);
  }
}

void CommQueue::serve() {
  Lock lock(mutex_);
  while (!closed_) {
    due_.wait(lock, [&] { return closed_ || (!queue_.empty() && !working_); });
    work(lock, nullptr);
  }
}

// Ends the group on all ranks. `told`: the caller knows the cause.
void CommQueue::die(const CommError& cause, bool told) {
  {
    const Lock lock(mutex_);
    cause_ = cause_ ? cause_ : cause;
    told_ = told_ || told;
  }
  backend_->abort(cause);
}

void CommQueue::abort(std::string_view reason) {
  if (!is_closed()) {
    die(aborted_error(backend_->rank(), reason, *names_), true);
  }
}

// Blocks the host until the GPU has finished the group's streams.
void CommQueue::finish_streams(Lock& lock) {
  if (streams_.empty()) {
    return;
  }
  const auto streams = streams_;
  const auto limit = timeout();
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
    error = CommError(fmt::format("process group: failed on rank {}: {}", rank_in_job_, late.what()),
                      {.fault = CommFault::timeout, .rank = rank_in_job_});
  }
  lock.lock();
  cause_ = cause_ ? cause_ : error;
}

void CommQueue::wait_all() {
  const SpanScope timed(Phase::collective);
  Lock lock(mutex_);
  help(lock, nullptr);
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
    const std::string text = core::error_in_flight();
    die(CommError(fmt::format("process group: rank {} is lost: it left its work by an exception{}{} [TDM-E618]",
                              rank_in_job_, text.empty() ? "" : ": ", text),
                  {.fault = CommFault::peer_lost, .rank = rank_in_job_}),
        true);
    lock.lock();
  }
  help(lock, nullptr);
  finish_streams(lock);
  closed_ = true;
  const std::string untold = cause_ && !told_ ? cause_->what() : "";
  if (!cause_) {
    cause_ = CommError("it was destroyed", {.fault = CommFault::aborted, .rank = rank_in_job_});
  }
  lock.unlock();
  due_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  }
  if (!untold.empty()) {
    core::warn(
        fmt::format("a process group of rank {} was destroyed, and nobody had waited for the call that failed: {}",
                    rank_in_job_, untold));
  }
  // A remaining Work or plan keeps the queue alive, but must not keep its connections open.
  backend_.reset();
}

}  // namespace tandem::inline v0::parallel::detail

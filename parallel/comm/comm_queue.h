#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include <tandem/core/cuda_stream.h>
#include <tandem/core/error.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/tensor/view.h>

// Internal: the calls of one rank, on their way from the user's threads to the backend.

namespace tandem::inline v0::parallel::detail {

using tandem::detail::View;

/// One call.
struct Operation {
  /// A copy between a tensor that is not dense and its dense stand-in.
  struct Copy {
    View to;
    View from;
  };

  /// The events that order a call on a GPU, where the group has a stream of its own.
  struct GpuOrder {
    explicit GpuOrder(Device device) : called(device), ended(device) {}
    cuda::Event called;  // work that the caller's stream held at the call
    cuda::Event ended;   // end of the call, successful or not
  };

  Collective call;
  Buffers buffers;
  CallTime time;
  std::uint64_t flow = 0;    // from the thread that starts the call to the one that runs it
  bool compared = true;      // whether ranks compare the call before it runs
  bool runs = true;          // whether the call moves data; making a plan only compares it
  std::vector<Copy> before;  // packs tensors that are not dense, before the call ...
  std::vector<Copy> after;   // ... and unpacks them after it
  View in;                   // in and out keep the memory of `buffers` alive
  View out;
  std::optional<GpuOrder> gpu;
  std::vector<int> members;        // ranks of a new group
  std::unique_ptr<Backend> split;  // the new group's backend

  // Guarded by the queue's mutex.
  bool pending = false;  // queued or running
  std::optional<CommError> error;
};

/// A group's operations on one rank. They run one at a time in the order of calls, with one exception: a send does not
/// need its peer and so does not wait for earlier recvs. Two ranks may therefore both receive before they send.
/// A waiting thread executes the queue itself, so that a call that is waited for at once needs no other thread.
/// Operations that no thread waits for run on the communication thread, which starts with the first such call. GPU
/// operations run in the order of a stream of the group's own, each after everything that the caller's stream held at
/// the call. wait() orders the waiting thread's stream after the operation.
class CommQueue {
 public:
  explicit CommQueue(std::unique_ptr<Backend> backend);
  /// See close().
  ~CommQueue();
  CommQueue(const CommQueue&) = delete;
  CommQueue& operator=(const CommQueue&) = delete;

  const Backend& backend() const noexcept { return *backend_; }
  const std::shared_ptr<GroupNames>& names() const noexcept { return names_; }
  /// Time from a call to its deadline.
  std::chrono::milliseconds timeout() const { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  /// Assigns number and deadline and leaves the operation to the communication thread. Throws CommError if the group is
  /// dead, ConfigError if the operation is still pending.
  void start(const std::shared_ptr<Operation>& operation);
  /// Like start(), but the operation is done when it returns. Throws the operation's error.
  void run(const std::shared_ptr<Operation>& operation);
  /// Returns when the operation is done. For a GPU, orders the calling thread's current stream after the operation
  /// without blocking the host. Throws the operation's error; for a GPU, which may not have finished, also an error
  /// that has ended the group since.
  void wait(Operation& operation);
  /// Whether the operation has ended, successfully or not, on the GPU as well.
  bool is_done(const Operation& operation);

  /// Number of reducers that are in a backward pass, on this thread or another.
  std::atomic<int> open_passes{0};
  /// Number of reducers so far.
  std::atomic<int> wrappers{0};
  /// Whether an error has ended the group. Every call then fails.
  bool is_dead();
  /// Whether the group was destroyed.
  bool is_closed();
  /// See ProcessGroup::abort().
  void abort(std::string_view reason);
  /// See ProcessGroup::wait_all().
  void wait_all();
  /// Finishes queued operations, or fails them at once if the group is dead or `unwinding`. Then warns about an error
  /// that no caller has seen.
  void close(bool unwinding) noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;
  void append(const std::shared_ptr<Operation>& operation, std::uint64_t flow);
  void note_silence(Operation& operation, std::chrono::steady_clock::time_point begin) const;
  void note_time(const Operation& operation, std::chrono::steady_clock::duration time);
  void finish(Lock& lock, Operation& operation);
  void help(Lock& lock, const Operation* until);
  void work(Lock& lock, const Operation* until);
  std::shared_ptr<Operation> take_next(Lock& lock);
  void perform(Operation& operation);
  void carry_out(Operation& operation);
  void finish_streams(Lock& lock);
  void die(const CommError& cause, bool told);
  void serve();

  std::unique_ptr<Backend> backend_;  // null once the queue is closed
  std::shared_ptr<GroupNames> names_;
  int rank_in_job_;
  std::vector<Collective> calls_;  // all ranks' calls while they are compared
  // By kind; a call's time with all waits. Host time, so unknown where the backend only queues work on a GPU.
  std::array<std::chrono::steady_clock::duration, kCollectiveKinds> usual_{};
  std::atomic<std::chrono::milliseconds> timeout_{};
  std::mutex mutex_;                               // guards the members below
  std::condition_variable due_;                    // signals work for the communication thread
  std::condition_variable done_;                   // signals that an operation is done
  std::vector<std::shared_ptr<Operation>> queue_;  // in the order of calls; short, and allocates only when it grows
  std::int64_t sequence_ = 0;
  bool working_ = false;    // some thread is in work()
  bool receiving_ = false;  // that thread waits for a message
  bool closed_ = false;
  bool told_ = false;  // a caller has seen the cause of death
  std::optional<CommError> cause_;
  std::map<int, cuda::Stream> streams_;  // by GPU; made by the thread in work()
  std::thread thread_;
};

}  // namespace tandem::inline v0::parallel::detail

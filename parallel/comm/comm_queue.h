#pragma once

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
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/operation.h>

namespace tandem::inline v0::parallel::detail {

/// A group's operations on one rank, in the order of calls, one at a time; but a send, which needs no peer, does not
/// wait for the recvs before it: two ranks may both receive before they send. Who waits for one does what is due
/// himself, so that a call that is waited for at once changes no thread; what nobody waits for is done by the
/// communication thread, which starts with the first such call. Those on a GPU are done in the order of a stream of the
/// group's own, each behind what the caller's stream held at the call; who has waited has his stream behind them.
class CommQueue {
 public:
  explicit CommQueue(std::unique_ptr<Backend> backend);
  /// See close().
  ~CommQueue();
  CommQueue(const CommQueue&) = delete;
  CommQueue& operator=(const CommQueue&) = delete;

  const Backend& backend() const noexcept { return *backend_; }
  /// From a call to its deadline.
  std::chrono::milliseconds timeout();
  void set_timeout(std::chrono::milliseconds timeout);

  /// Gives it its number and deadline, and leaves it to the communication thread. Throws CommError if the group is
  /// dead, ConfigError if the operation is still on its way.
  void start(const std::shared_ptr<Operation>& operation);
  /// The same, and has it done before it returns. Throws its error.
  void run(const std::shared_ptr<Operation>& operation);
  /// Has it done; on a GPU the calling thread's current stream is behind it then, and the host need not be. Throws its
  /// error, or what has ended the group since, where a GPU may not have done it.
  void wait(Operation& operation);
  /// Whether it is done, on the GPU as well, well or not.
  bool is_done(const Operation& operation);

  /// How many reducers are in a backward pass of this thread or another.
  std::atomic<int> open_passes{0};
  /// Whether something has ended the group: each call fails.
  bool is_dead();
  /// Whether its group is gone.
  bool is_closed();
  /// See ProcessGroup::abort().
  void abort(std::string_view reason);
  /// See ProcessGroup::wait_all().
  void wait_all();
  /// What is queued is finished, or fails at once if the group is dead or `unwinding`. Then says what no caller was
  /// told.
  void close(bool unwinding) noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;
  void append(const std::shared_ptr<Operation>& operation);
  void work(Lock& lock, const Operation* until);
  std::shared_ptr<Operation> take_next(Lock& lock);
  void perform(Operation& operation);
  void carry_out(Operation& operation);
  void compare(const Operation& operation);
  void finish(Lock& lock, Operation& operation);
  cuda::Stream stream_of(Device gpu);
  void finish_streams(Lock& lock);
  void drain(Lock& lock);
  void die(const CommError& cause);
  void serve();

  std::unique_ptr<Backend> backend_;
  std::vector<Collective> calls_;  // of all ranks, while they are compared
  std::mutex mutex_;
  std::condition_variable due_;   // the communication thread has something to do
  std::condition_variable done_;  // an operation is
  std::chrono::milliseconds timeout_{};
  std::shared_ptr<Operation> first_;
  Operation* last_ = nullptr;
  std::int64_t sequence_ = 0;
  bool working_ = false;    // some thread is in work()
  bool receiving_ = false;  // and waits for a message there
  bool closed_ = false;
  bool told_ = false;  // somebody was thrown the cause of death
  std::optional<CommError> cause_;
  std::map<int, cuda::Stream> streams_;  // by GPU
  std::thread thread_;
};

}  // namespace tandem::inline v0::parallel::detail

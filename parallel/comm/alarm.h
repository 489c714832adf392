#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <tandem/core/error.h>

// Internal: connects the control channel, which knows which rank died, with the backends, which only see that no data
// arrives.

namespace tandem::inline v0::parallel {

/// One per job and process. The alarm rings when the job is over, for the cause that was heard first: a verdict of the
/// store's server, the loss of that server, or an error of this rank. Backends listen, so that waiting calls end at
/// once. A backend that sees a connection close first waits here a moment for the cause, which names the rank, before
/// it reports an error of its own.
class Alarm {
  struct State;

 public:
  using Listener = std::function<void(const CommError& cause)>;
  /// Destroying a Subscription ends listening. The listener is no longer running once the destructor returns.
  class Subscription {
   public:
    Subscription() = default;
    ~Subscription();
    Subscription(Subscription&& other) noexcept = default;
    Subscription& operator=(Subscription&& other) = delete;

   private:
    friend class Alarm;
    Subscription(std::shared_ptr<State> state, std::uint64_t number) : state_(std::move(state)), number_(number) {}
    std::shared_ptr<State> state_;
    std::uint64_t number_ = 0;
  };

  /// The time in which the alarm may tell why the store or a connection broke: all connections of a process that dies
  /// close at about the same time.
  static constexpr std::chrono::milliseconds kExplanationTime{700};

  Alarm();

  /// Rings and tells the listeners on this thread. Only the first call counts. May be called from any thread.
  void ring(const CommError& cause) noexcept;
  /// The cause, if the alarm has rung.
  std::optional<CommError> cause() const;
  /// Waits until the alarm rings and returns the cause; empty after `timeout`.
  std::optional<CommError> wait_for(std::chrono::milliseconds timeout) const;
  /// Calls `listener` once the alarm rings, or immediately if it has rung. The listener must neither wait nor throw.
  [[nodiscard]] Subscription listen(Listener listener) const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace tandem::inline v0::parallel

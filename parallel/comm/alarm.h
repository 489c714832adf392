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
#include <vector>

#include <tandem/core/error.h>

// Internal: where the control channel, which knows who died, meets the backends, which only see that nothing comes.

namespace tandem::inline v0::parallel {

/// One per job and process. It rings when the job is over, by whatever was heard first: a verdict of the store's
/// server, its loss, or an error of this rank. Backends listen, so that calls that wait end at once; and a backend that
/// sees a connection close waits here a moment for the reason, which names the rank, before it gives its own.
class Alarm {
  struct State;

 public:
  using Listener = std::function<void(const CommError& cause)>;
  /// Ends listening when it is destroyed; the listener is not running any more then.
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

  Alarm();
  /// Of some of the ranks of `whole`, who have other numbers among themselves: the two ring each other, and for the
  /// same cause, whichever of them heard of it.
  Alarm(std::shared_ptr<Alarm> whole, std::vector<int> members);

  /// The first call counts: it tells the listeners, on this thread. From any thread.
  void ring(const CommError& cause) noexcept;
  /// What it rang for.
  std::optional<CommError> cause() const;
  /// Waits until it rings.
  std::optional<CommError> wait_for(std::chrono::milliseconds timeout) const;
  /// `listener` is called once it rings; if it has already, now. It must neither wait nor throw.
  [[nodiscard]] Subscription listen(Listener listener) const;

 private:
  void ring_here(const CommError& cause) noexcept;

  std::shared_ptr<State> state_;
  std::shared_ptr<Alarm> whole_;  // null: this is of all ranks
  std::vector<int> members_;
  Subscription from_whole_;
};

}  // namespace tandem::inline v0::parallel

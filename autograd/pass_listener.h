#pragma once

#include <cstdint>
#include <exception>
#include <vector>

#include <tandem/autograd/node.h>

// Internal: notifications at the beginning and the end of a backward pass.

namespace tandem::inline v0::autograd {

/// Receives notifications about a backward pass, on the thread that called backward(). An exception from a notification
/// fails the pass, unless the pass has failed already. The listeners of a pass are notified in the order of their
/// construction, regardless of the graph. Ranks with different graphs may therefore communicate in these calls.
class PassListener {
 public:
  /// Called after all nodes that watch passes were told, and before any gradient is computed.
  virtual void on_pass_begin() = 0;
  /// Called after all gradients have been delivered. Each listener may change the gradients for which it is
  /// responsible.
  virtual void on_pass_end() = 0;
  /// Called after on_pass_end() has returned for all listeners of the pass, so hooks may look at any gradient. This is
  /// the last call.
  virtual void on_pass_done() = 0;
  /// Called instead of the next notification if the pass failed. Listeners that threw from on_pass_end() or
  /// on_pass_done() are not called again. This is the last call.
  virtual void on_pass_failed(const std::exception& failure) = 0;

 protected:
  PassListener() noexcept;
  ~PassListener() = default;

 private:
  friend class PassListeners;
  std::uint64_t number_;
};
/// Registers `listener` for the pass that `member` belongs to. The listener must live until its last call. Call this
/// from on_pass() of a node that watches passes.
void listen_to_pass(const Node& member, PassListener& listener);

/// Tells the nodes that watch passes that a backward pass from `root` was refused before it began. Changes nothing.
void refuse_backward(Node& root, const std::exception& refusal);

/// The listeners of one pass.
class PassListeners {
 public:
  void add(PassListener& listener);
  void begin();
  void end();
  void fail(const std::exception& failure);

 private:
  std::vector<PassListener*> listeners_;  // in construction order; null after the last call to a listener
};

}  // namespace tandem::inline v0::autograd

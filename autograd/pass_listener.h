#pragma once

#include <cstdint>
#include <exception>
#include <vector>

#include <tandem/autograd/node.h>

// Internal: who is told how a backward pass begins and ends.

namespace tandem::inline v0::autograd {

/// Is told of a backward pass, on the thread that called backward(). What it throws fails the pass, unless that has
/// failed already. Those of one pass are told in the order in which they were constructed, whatever the graph is: ranks
/// whose graphs differ may talk to each other in these calls.
class PassListener {
 public:
  /// All nodes that watch passes have been told, and no gradient is there yet.
  virtual void on_pass_begin() = 0;
  /// All gradients have been delivered, and each listener may change those that it is responsible for.
  virtual void on_pass_end() = 0;
  /// All listeners of the pass have returned from that, so that hooks may look at any gradient. The last call.
  virtual void on_pass_done() = 0;
  /// The pass failed, instead of the next of these calls. Not for who threw from the two before. The last call.
  virtual void on_pass_failed(const std::exception& failure) = 0;

 protected:
  PassListener() noexcept;
  ~PassListener() = default;

 private:
  friend class PassListeners;
  std::uint64_t number_;
};
/// The pass that `member` is part of will tell `listener`, which must live until its last call; from on_pass() of a
/// node that watches passes.
void listen_to_pass(const Node& member, PassListener& listener);

/// A backward pass from `root` does not begin, for this reason: tells nodes that watch passes, and changes nothing.
void refuse_backward(Node& root, const std::exception& refusal);

/// Those of one pass.
class PassListeners {
 public:
  void add(PassListener& listener);
  void begin();
  void end();
  void fail(const std::exception& failure);

 private:
  std::vector<PassListener*> listeners_;  // by number; null: it was told for the last time
};

}  // namespace tandem::inline v0::autograd

#pragma once

#include <exception>
#include <vector>

#include <tandem/autograd/node.h>

// Internal: who is told how a backward pass ends.

namespace tandem::inline v0::autograd {

/// Is told of a backward pass, on the thread that called backward(): when all gradients are there, or else why not.
/// What it throws fails the pass.
class PassListener {
 public:
  /// All gradients have been delivered. Listeners may still change theirs: nothing of the user's runs.
  virtual void on_pass_end() = 0;
  /// All listeners of the pass have returned from that, so that hooks may look at any gradient. The last call.
  virtual void on_pass_done() = 0;
  /// The pass failed, instead of the next of these calls. Not for who threw. The last call.
  virtual void on_pass_failed(const std::exception& failure) = 0;

 protected:
  ~PassListener() = default;
};
/// The pass that `member` is part of will tell `listener`; from on_pass() or apply() of a node, or an observer of a
/// leaf. The listener must live until its last call. Any thread of the pass may call.
void listen_to_pass(const Node& member, PassListener& listener);

/// Those of one pass.
class PassListeners {
 public:
  void add(PassListener& listener) { listeners_.push_back(&listener); }
  void end();
  void fail(const std::exception& failure);

 private:
  std::vector<PassListener*> listeners_;  // null: it was told for the last time
};

}  // namespace tandem::inline v0::autograd

#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/parallel/distributed/bucket_exchange.h>
#include <tandem/parallel/distributed/join_state.h>
#include <tandem/parallel/distributed/used_parameters.h>

// Internal: one backward pass through a wrapper.

namespace tandem::inline v0::parallel {

class Reducer;

/// One backward pass of a Reducer, from the first output of the module that the pass reaches until the pass is done or
/// has failed. The calls come in this order, all except run_post_hooks() under the Reducer's lock:
///
///   add_output()   for each output of the module in the pass, before any gradient exists. Says whether the gradients
///                  are reduced or stay local (no_sync()); one output outside of no_sync() is enough.
///   begin()        All outputs are known, and with them the parameters that get no gradient. Without
///                  find_unused_parameters the pass fails here, before anything is sent. In a Join the ranks exchange
///                  their numbers of samples, which make the weights.
///   on_gradient()  for each parameter, on the thread of its device. Then send_ready(): buckets that are complete
///                  leave.
///   end()          Sends the remaining buckets, waits for all, then agrees on used parameters and sends buffers.
///   leaves_with_hooks(), run_post_hooks()   Users' hooks see the mean over the ranks.
///
/// On a rank whose input has ended in a Join, follow() takes the place of everything before end(). When the pass fails,
/// here or elsewhere in the graph, fail() takes the place of the next call: it ends the group, so that no rank waits
/// for this one, and forgets all gradients, since some may be reduced and some not. An end() that throws has done both.
class ReducerPass {
 public:
  using PassId = const void*;  // the engine's address of the pass; the Reducer's own where the pass only follows

  ReducerPass(std::shared_ptr<Reducer> reducer, PassId id);

  /// Null from end() on.
  PassId id() const noexcept { return id_; }
  /// Whether the gradients are reduced. Known once all outputs were added.
  bool is_synced() const noexcept { return synced_; }

  void add_output(bool synced, std::int64_t samples);
  void begin();
  void follow();
  void on_gradient(std::size_t member);
  void send_ready();
  /// Whether this gradient was the last one of a bucket that is sent to other ranks, or to a hook.
  bool completes_bucket(std::size_t member) const;
  void end();
  std::vector<autograd::Leaf*> leaves_with_hooks() const;
  void run_post_hooks(const std::vector<autograd::Leaf*>& leaves) const;
  void fail(const std::exception& failure);

 private:
  void sync();
  void close();
  void settle_absent();
  void fill_absent(std::size_t member, bool counts);
  void send(std::size_t bucket);
  void reduce();
  void forget() noexcept;

  std::shared_ptr<Reducer> reducer_;  // the wrapper and the graph may be gone before the engine's last call
  PassId id_;
  bool uses_parts_ = false;              // a pass of ParameterParts is open
  bool synced_ = false;                  // some output asks for gradients of all ranks
  bool lacks_ = false;                   // some gradient, in this pass or in a local one before
  bool follows_ = false;                 // in a Join, this rank's input has ended, and no_sync() has left it no samples
  std::optional<std::int64_t> samples_;  // in a Join
  PassWeights weights_;
  BucketSchedule schedule_;
  std::vector<KeptGradient> kept_;
};

}  // namespace tandem::inline v0::parallel

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <tandem/autograd/ops.h>
#include <tandem/core/export.h>
#include <tandem/parallel/distributed/distributed_data_parallel.h>

namespace tandem::inline v0::parallel {

class JoinState;

/// The kind of losses in a Join, and where their samples lie.
struct JoinOptions {
  /// mean: each loss is a mean over its rank's samples, and a rank's gradient weighs as many as it has. sum: each loss
  /// is a sum, in which all samples weigh the same already.
  Reduction reduction = Reduction::mean;
  /// The dimension of the inputs in which their samples lie.
  int batch_dim = 0;
};

/// Ranks with unequal inputs: the last batches are shorter, or some ranks have fewer batches, or none. In a Join's
/// scope backward() through the wrapper gives the mean over the samples of all ranks, as one device does for the joined
/// batches. A rank whose input has ended takes part in the passes of the others, so that no rank waits for it and all
/// have the same weights:
///
///     parallel::Join join(ddp);
///     for (const auto& [x, y] : loader) {
///       adam.zero_grad();
///       nn::cross_entropy(ddp(x), y).backward();
///       adam.step();
///     }
///     join.finish([&] { adam.step(); });
///
/// All ranks make a Join, and call finish() when their input ends. Give finish() the part of the loop that handles the
/// parameters between two reduced backward passes: here step(), elsewhere also clipping, a GradScaler, or a schedule.
/// Ranks compare whether parameters changed, and a difference is a ConfigError.
///
/// Samples are counted at each forward pass: the size of the input tensors' first dimension. After no_sync() the result
/// is the mean over all samples since the last reduced pass, whatever the sizes of the batches, times the number of
/// passes. A rank whose input ends during no_sync() loses no sample.
///
/// The loop must make no other collectives on the wrappers' group: they would wait for ranks that have ended, and are a
/// CommError.
///
/// torch.distributed.algorithms.join.Join has the same purpose, but weighs ranks, not samples.
class TANDEM_API Join {
 public:
  /// A collective. Refers to `ddp`, which must outlive the Join. Throws ConfigError if `ddp` is in a Join already; and
  /// on all ranks, if one of them has gradients from no_sync() that were not reduced.
  template <class M>
  explicit Join(DistributedDataParallel<M>& ddp, const JoinOptions& options = {})
      : Join(std::vector{ddp.reducer()}, options) {}
  /// Joins several wrappers over one group that are trained in one loop: Join(std::tie(critic, generator)).
  template <class... Ms>
  explicit Join(const std::tuple<DistributedDataParallel<Ms>&...>& wrappers, const JoinOptions& options = {})
      : Join(std::apply([](auto&... ddp) { return std::vector{ddp.reducer()...}; }, wrappers), options) {}
  /// Ends the group on all ranks if finish() was not called, be it forgotten or because of an exception: the others
  /// would wait for this rank forever.
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  /// The next forward pass has `count` samples: for inputs that do not show it, such as masks of another size, and for
  /// means over something else, such as tokens. Throws ConfigError unless `count` is more than 0.
  void samples(std::int64_t count);

  /// This rank's input has ended. Returns when the input of all ranks has ended. Until then this rank takes part in
  /// each reduced pass of the others, with no samples except those that no_sync() left here, and calls the step of the
  /// wrapper after each. Afterwards the wrappers are as without a Join. A collective. Once: throws ConfigError the
  /// second time, and for another number of steps than wrappers; CommError when another rank fails.
  template <class... Steps>
  void finish(Steps&&... steps) {
    finish_with({std::function<void()>(std::forward<Steps>(steps))...});
  }

 private:
  Join(std::vector<std::shared_ptr<Reducer>> reducers, const JoinOptions& options);
  void finish_with(const std::vector<std::function<void()>>& steps);
  std::vector<std::shared_ptr<Reducer>> reducers_;

  std::shared_ptr<JoinState> state_;  // until finish()
  int exceptions_;                    // in flight when the Join was made
};

}  // namespace tandem::inline v0::parallel

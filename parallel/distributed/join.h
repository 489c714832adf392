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

/// What the losses in a Join are.
struct JoinOptions {
  /// mean: each loss is a mean over its rank's samples, and a rank's gradient weighs as many as it has. sum: it is a
  /// sum, which weighs each sample the same already.
  Reduction reduction = Reduction::mean;
  /// The dimension of the inputs in which their samples lie.
  int batch_dim = 0;
};

/// Ranks with unequal inputs: the last batches are shorter, or some ranks have fewer of them, or none. In its scope
/// backward() through the wrapper gives the mean over the samples of all ranks, what one device gives for their joined
/// batches; and a rank whose input has ended goes along with the others, so that nobody waits for it and all have the
/// same weights:
///
///     parallel::Join join(ddp);
///     for (const auto& [x, y] : loader) {
///       adam.zero_grad();
///       nn::cross_entropy(ddp(x), y).backward();
///       adam.step();
///     }
///     join.finish([&] { adam.step(); });
///
/// All ranks make a Join, and call finish() when their input ends. What the loop does with the parameters between two
/// reduced backward passes is what finish() is given to do: here step(), elsewhere also clipping, a GradScaler, or a
/// schedule. Whether the parameters changed is compared across ranks, and a difference is a ConfigError.
///
/// Samples are counted at each forward pass: the size of its tensors' first dimension. Gradients that no_sync() left
/// belong to the samples that they are of, whatever the sizes of their batches: what is reduced is the mean over all
/// samples since the last time, times the number of passes. A rank whose input ends meanwhile loses none.
///
/// Collectives of the loop's own on the wrappers' group would wait for ranks that have ended, and are a CommError.
///
/// torch.distributed.algorithms.join.Join has the same purpose, but weighs ranks, not samples.
class TANDEM_API Join {
 public:
  /// A collective. Refers to `ddp`, which must live as long. Throws ConfigError if that is in a Join; and on all ranks
  /// where one has gradients, from no_sync() or from before wrapping, that were not reduced.
  template <class M>
  explicit Join(DistributedDataParallel<M>& ddp, const JoinOptions& options = {})
      : Join(std::vector{detail::reducer_of(ddp)}, options) {}
  /// Several wrappers that are trained in one loop, over one group: Join(std::tie(critic, generator)).
  template <class... Ms>
  explicit Join(const std::tuple<DistributedDataParallel<Ms>&...>& wrappers, const JoinOptions& options = {})
      : Join(std::apply([](auto&... ddp) { return std::vector{detail::reducer_of(ddp)...}; }, wrappers), options) {}
  /// Without a finish() before, be it forgotten or because of an exception, it ends the group on all ranks, which would
  /// wait for this one for ever.
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  /// The next forward pass has `count` samples: where its inputs do not show it, as with masks of another size, or
  /// where the mean is one over something else, such as tokens. Throws ConfigError unless it is more than 0.
  void samples(std::int64_t count);

  /// This rank's input has ended. Returns when that of all has: until then it takes part in each of their reduced
  /// passes, without samples (but for those that no_sync() left here), and calls `step` after each; of several wrappers
  /// the one of that wrapper. From then on the wrappers are as without a Join. A collective. Once: throws ConfigError
  /// the second time, and for another number of steps than wrappers; CommError when another rank fails.
  template <class... Steps>
  void finish(Steps&&... steps) {
    finish_with({std::function<void()>(std::forward<Steps>(steps))...});
  }

 private:
  Join(std::vector<std::shared_ptr<Reducer>> reducers, const JoinOptions& options);
  void finish_with(const std::vector<std::function<void()>>& steps);

  std::unique_ptr<JoinState> state_;  // until finish()
  int exceptions_;                    // that were on their way when it was made
};

}  // namespace tandem::inline v0::parallel

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/autograd/parameter_store.h>

namespace tandem::inline v0::parallel {

/// Internal: the memory layout of a module's trained parameters, which replicas use for their gradients. Gradients of
/// one ParameterStore lie in one block in the store's order and are added as a whole.
class GradientLayout {
 public:
  /// Packs parameters that are not in a store yet.
  explicit GradientLayout(std::vector<Tensor> trained);

  const std::vector<Tensor>& parameters() const noexcept { return parameters_; }
  /// The places of the parameters.
  const std::vector<ParameterStore::Place>& places() const noexcept { return places_; }
  /// The indices of the parameters, those of each store in memory order.
  const std::vector<std::size_t>& order() const noexcept { return order_; }
  /// Whether all parameters still have the same places.
  bool holds() const;

  /// Memory for the gradients of replicas: for each replica one block per store. Blocks are kept from step to step,
  /// because allocating them costs more than a small step. A step that is being recorded gets new memory of its own,
  /// which costs its replays nothing.
  using Blocks = std::vector<std::map<const ParameterStore*, tandem::detail::View>>;
  Blocks take_blocks(std::size_t replicas) const;
  void give_back(Blocks blocks) const;

 private:
  std::vector<Tensor> parameters_;
  std::vector<ParameterStore::Place> places_;
  std::vector<std::size_t> order_;
  mutable std::mutex mutex_;  // passes of several threads may end at once
  mutable std::vector<Blocks> spare_;
};

/// Internal: the parameters of all replicas except the first, as results of the module's parameters. The backward
/// function sums their gradients into the module's once all have arrived. Result r * P + p is parameter p of replica r
/// + 1.
class ReplicateNode final : public autograd::Node {
 public:
  ReplicateNode(std::shared_ptr<const GradientLayout> layout, std::size_t replicas);

  void apply(autograd::Gradients& gradients) override;
  void release() noexcept override {}
  bool released() const noexcept override { return false; }
  tandem::detail::View gradient_memory(std::uint32_t i) override;

 private:
  struct Sum;
  tandem::detail::View& block(std::size_t replica, std::size_t parameter);
  Sum sum_of(autograd::Gradients& gradients, std::size_t parameter);

  std::shared_ptr<const GradientLayout> layout_;
  std::size_t replicas_;
  std::mutex mutex_;                 // replicas ask at the same time
  GradientLayout::Blocks blocks_;    // allocated at first use
  bool has_blocks_of_step_ = false;  // in memory of the captured step that is being recorded
};

}  // namespace tandem::inline v0::parallel

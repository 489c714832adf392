#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/autograd/parameter_store.h>

namespace tandem::inline v0::parallel {

/// Internal: the memory layout of a module's trained parameters, which replicas use for their gradients. Gradients of
/// one ParameterStore lie in one block in the store's order and are added as a whole.
struct GradientLayout {
  struct Member {
    std::size_t group;
    ParameterStore::Segment segment;
  };
  struct Group {
    std::shared_ptr<ParameterStore> store;
    std::vector<std::size_t> members;  // parameters in memory order
  };
  std::vector<Tensor> parameters;
  std::vector<Member> members;  // one per parameter
  std::vector<Group> groups;

  /// Memory for the gradients of replicas: one block per replica and group. Blocks are kept from step to step, because
  /// allocating them costs more than a small step.
  using Blocks = std::vector<tandem::detail::View>;
  Blocks take_blocks(std::size_t count) const;
  void give_back(Blocks blocks) const;

  /// Packs parameters that are not in a store yet.
  explicit GradientLayout(std::vector<Tensor> trained);
  /// Whether all parameters still have the same places.
  bool holds() const;

 private:
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
  tandem::detail::View& block(std::size_t replica, std::size_t group);
  bool is_in_block(const tandem::detail::View& gradient, std::size_t replica, std::size_t parameter);
  Sum sum_of(autograd::Gradients& gradients, std::size_t parameter);
  void add(const Sum& sum);

  std::shared_ptr<const GradientLayout> layout_;
  std::size_t replicas_;
  std::mutex mutex_;               // replicas ask at the same time
  GradientLayout::Blocks blocks_;  // by replica and group; allocated at first use
};

}  // namespace tandem::inline v0::parallel

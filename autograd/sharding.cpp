#include <tandem/autograd/sharding.h>

#include <algorithm>
#include <ranges>

#include <tandem/autograd/node.h>
#include <tandem/core/check.h>

namespace tandem::inline v0::autograd {

namespace {

Sharding* keeper_of_parts(const Tensor& tensor) noexcept {
  const Leaf* leaf = leaf_of(*tensor.unresolved());
  return leaf != nullptr && leaf->part.by != nullptr && leaf->part.by->keeps_parts() ? leaf->part.by : nullptr;
}

}  // namespace

std::shared_ptr<StepPartners> LeafPartners::require(PartnerKind kind) const {
  const std::weak_ptr<StepPartners>& partners = of(kind);
  std::shared_ptr<StepPartners> there = partners.lock();
  const std::weak_ptr<StepPartners> none;
  const bool was_set = none.owner_before(partners) || partners.owner_before(none);
  check<ConfigError>(there != nullptr || !was_set,
                     "the group of the ranks that divide a parameter is gone, and without it this rank knows only its "
                     "part of the gradient; keep the group until the last step");
  return there;
}

bool is_kept_in_parts(const Tensor& tensor) noexcept { return keeper_of_parts(tensor) != nullptr; }

// The other constructor lets the destructor close what is open when begin_reading() throws.
ReadingScope::ReadingScope(const std::vector<Tensor>& tensors) : ReadingScope() {
  for (const Tensor& tensor : tensors) {
    Sharding* const by = keeper_of_parts(tensor);
    if (by != nullptr && std::ranges::find(sharings_, by) == sharings_.end()) {
      sharings_.reserve(sharings_.size() + 1);
      by->begin_reading();
      sharings_.push_back(by);
    }
  }
}

ReadingScope::~ReadingScope() {
  for (Sharding* by : std::views::reverse(sharings_)) {
    by->end_reading();
  }
}

}  // namespace tandem::inline v0::autograd

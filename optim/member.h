#pragma once

#include <cstdint>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/optim/optimizer.h>

// Internal: what an optimiser knows of one parameter.

namespace tandem::inline v0::optim {

/// A parameter and what is kept for it. Its buffers are parts of those of its slice.
struct Optimizer::Member {
  Tensor parameter;
  std::size_t index;  // in parameters()
  const Group* group;
  const void* values = nullptr;  // where it was when the slices were cut
  std::uint32_t generation = 0;  // and which: after a move memory may be used again
  bool in_slice = false;
  std::size_t slice = 0;
  std::int64_t steps = 0;               // while in no slice
  std::vector<detail::View> buffers{};  // dense; padded, but for those that were loaded

  autograd::Leaf* leaf() const { return autograd::leaf_of(*parameter.unresolved()); }
  bool buffers_on_own_stream() const {
    return leaf()->raw_grad().storage->on_own_stream() || (!buffers.empty() && buffers[0].storage->on_own_stream());
  }
  void note_stream() const {
    leaf()->raw_grad().storage->note_stream();
    for (const detail::View& buffer : buffers) {
      buffer.storage->note_stream();
    }
  }
  bool changed_since_cut() const {
    const autograd::Leaf* at = leaf();
    if (at != nullptr) {
      at->note_use(false);  // a recording is of steps in which the same parameters have gradients
    }
    return in_slice != (at != nullptr && at->fresh()) || values != parameter.unresolved()->view.data() ||
           (at != nullptr && generation != at->generation());
  }
};

}  // namespace tandem::inline v0::optim

#pragma once

#include <cstdint>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/optim/optimizer.h>

// Internal: what an optimiser knows about one parameter.

namespace tandem::inline v0::optim {

/// A parameter and the values kept for it. Its buffers are parts of its slice's buffers.
struct Optimizer::Member {
  Tensor parameter;
  std::size_t index;  // in parameters()
  const Group* group;
  const void* values = nullptr;  // address of the parameter when the slices were cut
  std::uint32_t generation = 0;  // and its generation: after a move, memory may be reused at the same address
  bool in_slice = false;
  std::size_t slice = 0;
  std::int64_t steps = 0;               // valid while in no slice
  std::vector<detail::View> buffers{};  // dense; padded, except buffers loaded from a state
  autograd::LeafPart part{};            // whose values the buffers are

  autograd::Leaf* leaf() const { return autograd::leaf_of(*parameter.unresolved()); }
  std::int64_t numel() const { return parameter.unresolved()->view.numel(); }
  /// The elements for which there are values, without gaps.
  std::int64_t begin() const { return part.first_of(numel()); }
  std::int64_t count() const { return part.count_of(numel()); }
  /// The part of the parameter that this rank updates now.
  autograd::LeafPart part_now() const { return leaf() != nullptr ? leaf()->part : autograd::LeafPart(); }
  bool buffers_on_own_stream() const {
    return leaf()->raw_grad().storage->on_own_stream() || (!buffers.empty() && buffers[0].storage->on_own_stream());
  }
  void note_stream() const {
    leaf()->raw_grad().storage->note_stream();
    for (const detail::View& buffer : buffers) {
      buffer.storage->note_stream();
    }
  }
  bool is_postponed() const {
    const autograd::Leaf* at = leaf();
    return at != nullptr && at->postponed() != nullptr;
  }
  bool changed_since_cut() const {
    const autograd::Leaf* at = leaf();
    if (at != nullptr) {
      at->note_use(false);  // a recording is valid only while the same parameters have gradients
    }
    return in_slice != (at != nullptr && at->fresh()) || values != parameter.unresolved()->view.part_data() ||
           (at != nullptr && generation != at->generation()) || part != part_now();
  }
};

}  // namespace tandem::inline v0::optim

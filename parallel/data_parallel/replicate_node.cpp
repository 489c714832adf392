#include <tandem/parallel/data_parallel/replicate_node.h>

#include <algorithm>
#include <map>
#include <utility>

#include <tandem/core/step_times.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

using autograd::Destination;
using autograd::Gradients;
using kernels::Accumulate;
using tandem::detail::View;

GradientLayout::GradientLayout(std::vector<Tensor> trained) : parameters(std::move(trained)) {
  ParameterStore::ensure(parameters);
  std::map<const ParameterStore*, std::size_t> known;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterStore::Place place = ParameterStore::find(parameters[i]);
    const auto [found, added] = known.try_emplace(place.store.get(), groups.size());
    if (added) {
      groups.push_back({place.store, {}});
    }
    members.push_back({found->second, place.store->segments()[place.segment]});
    groups[found->second].members.push_back(i);
  }
  for (Group& group : groups) {
    std::sort(group.members.begin(), group.members.end(),
              [&](std::size_t a, std::size_t b) { return members[a].segment.offset < members[b].segment.offset; });
  }
}

bool GradientLayout::holds() const {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (ParameterStore::find(parameters[i]).store != groups[members[i].group].store) {
      return false;
    }
  }
  return true;
}

GradientLayout::Blocks GradientLayout::take_blocks(std::size_t count) const {
  const std::lock_guard lock(mutex_);
  Blocks blocks;
  if (!spare_.empty()) {
    blocks = std::move(spare_.back());
    spare_.pop_back();
  }
  blocks.resize(count);
  for (View& block : blocks) {
    if (block.defined() && !block.storage->is_unique()) {  // a hook kept a gradient in this block
      block = {};
    }
  }
  return blocks;
}

void GradientLayout::give_back(Blocks blocks) const {
  const std::lock_guard lock(mutex_);
  spare_.push_back(std::move(blocks));
}

ReplicateNode::ReplicateNode(std::shared_ptr<const GradientLayout> layout, std::size_t replicas)
    : Node("replicate", static_cast<std::uint32_t>(layout->parameters.size() * replicas)),
      layout_(std::move(layout)),
      replicas_(replicas) {
  connect(layout_->parameters);
  set_leaf_depth();  // runs after all that the first replica adds to the parameters' gradients
}

View& ReplicateNode::block(std::size_t replica, std::size_t group) {
  const std::lock_guard lock(mutex_);
  const std::size_t groups = layout_->groups.size();
  if (blocks_.empty()) {
    blocks_ = layout_->take_blocks(replicas_ * groups);
  }
  return blocks_[replica * groups + group];
}

// Called only on the lane of the replica's device.
View ReplicateNode::gradient_memory(std::uint32_t i) {
  const std::size_t parameter = i % layout_->parameters.size();
  const GradientLayout::Member& member = layout_->members[parameter];
  const auto [offset, numel, padded] = member.segment;
  View& whole = block(i / layout_->parameters.size(), member.group);
  if (!whole.defined()) {
    whole = tandem::detail::empty_view({layout_->groups[member.group].store->values().numel()}, output(i).dtype,
                                       output(i).device);
  }
  if (padded > numel) {
    tandem::detail::fill(tandem::detail::narrow(whole, 0, offset + numel, padded - numel), 0);
  }
  return *tandem::detail::try_reshape(tandem::detail::narrow(whole, 0, offset, numel), output(i).sizes);
}

bool ReplicateNode::is_in_block(const View& gradient, std::size_t replica, std::size_t parameter) {
  const GradientLayout::Member& member = layout_->members[parameter];
  const View& whole = block(replica, member.group);
  return whole.defined() && gradient.storage.get() == whole.storage.get() && gradient.offset == member.segment.offset;
}

/// A sum into one parameter's gradient, or into those of several parameters that are neighbours in all blocks.
struct ReplicateNode::Sum {
  Destination to;
  std::vector<View> parts;  // one per replica, in order; undefined for none
  bool joins = false;       // everything lies in blocks, including gaps between parameters

  // Extends this sum by `next` if both are neighbours.
  bool extend(const Sum& next) {
    const bool neighbours = joins && next.joins && to.accumulate == next.to.accumulate &&
                            to.view.storage.get() == next.to.view.storage.get() &&
                            to.view.offset + to.view.sizes[0] == next.to.view.offset &&
                            std::equal(parts.begin(), parts.end(), next.parts.begin(),
                                       [](const View& a, const View& b) { return a.defined() == b.defined(); });
    if (neighbours) {
      to.view.sizes[0] += next.to.view.sizes[0];
      for (std::size_t r = 0; r < parts.size(); ++r) {
        if (parts[r].defined()) {
          parts[r].sizes[0] += next.parts[r].sizes[0];
        }
      }
    }
    return neighbours;
  }
};

ReplicateNode::Sum ReplicateNode::sum_of(Gradients& gradients, std::size_t parameter) {
  const GradientLayout::Member& member = layout_->members[parameter];
  const auto [offset, numel, padded] = member.segment;
  const View& home = layout_->groups[member.group].store->gradients();
  const auto input = static_cast<std::uint32_t>(parameter);
  Sum sum;
  bool any = false;
  bool in_blocks = true;
  for (std::size_t r = 0; r < replicas_; ++r) {
    const View& part = gradients.output(static_cast<std::uint32_t>(r * layout_->parameters.size() + parameter));
    any = any || part.defined();
    in_blocks = in_blocks && (!part.defined() || is_in_block(part, r, parameter));
    sum.parts.push_back(part);
  }
  if (!any || !gradients.wants(input)) {
    sum.parts.clear();
    return sum;
  }
  sum.to = gradients.destination(input);
  sum.joins = in_blocks && sum.to.view.data() == tandem::detail::narrow(home, 0, offset, numel).data();
  if (sum.joins) {
    sum.to.view = tandem::detail::narrow(home, 0, offset, padded);
    for (std::size_t r = 0; r < replicas_; ++r) {
      if (sum.parts[r].defined()) {
        sum.parts[r] = tandem::detail::narrow(block(r, member.group), 0, offset, padded);
      }
    }
  }
  return sum;
}

void ReplicateNode::add(const Sum& sum) {
  Accumulate accumulate = sum.to.accumulate;
  for (const View& part : sum.parts) {
    if (part.defined()) {
      tandem::detail::copy(sum.to.view, part, accumulate);
      accumulate = Accumulate::yes;
    }
  }
}

void ReplicateNode::apply(Gradients& gradients) {
  const PhaseScope timed(Phase::reduce);
  for (const GradientLayout::Group& group : layout_->groups) {
    Sum run;
    for (const std::size_t parameter : group.members) {
      Sum next = sum_of(gradients, parameter);
      if (next.parts.empty() || run.extend(next)) {
        continue;
      }
      add(run);
      run = std::move(next);
    }
    add(run);
  }
  if (!blocks_.empty()) {
    layout_->give_back(std::exchange(blocks_, {}));
  }
}

}  // namespace tandem::inline v0::parallel

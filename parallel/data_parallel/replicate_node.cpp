#include <tandem/parallel/data_parallel/replicate_node.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include <tandem/core/span.h>
#include <tandem/tensor/raw.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::parallel {

using autograd::Destination;
using autograd::Gradients;
using kernels::Accumulate;
using tandem::detail::View;

namespace {

const ParameterStore::Segment& segment_at(const ParameterStore::Place& place) {
  return place.store->segments()[place.segment];
}

}  // namespace

GradientLayout::GradientLayout(std::vector<Tensor> trained)
    : parameters_(std::move(trained)), order_(parameters_.size()) {
  ParameterStore::ensure(parameters_);
  std::ranges::transform(parameters_, std::back_inserter(places_), ParameterStore::find);
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::sort(order_, {}, [&](std::size_t i) { return std::pair(places_[i].store.get(), places_[i].segment); });
}

bool GradientLayout::holds() const { return std::ranges::equal(places_, parameters_, {}, {}, ParameterStore::find); }

GradientLayout::Blocks GradientLayout::take_blocks(std::size_t replicas) const {
  if (tandem::detail::step_recorder() != nullptr) {
    return Blocks(replicas);
  }
  const std::lock_guard lock(mutex_);
  Blocks blocks;
  if (!spare_.empty()) {
    blocks = std::move(spare_.back());
    spare_.pop_back();
  }
  blocks.resize(replicas);
  for (auto& of_replica : blocks) {
    std::erase_if(of_replica, [](const auto& block) {  // a hook kept a gradient in this block
      return block.second.defined() && !block.second.storage->is_unique();
    });
  }
  return blocks;
}

void GradientLayout::give_back(Blocks blocks) const {
  const std::lock_guard lock(mutex_);
  spare_.push_back(std::move(blocks));
}

ReplicateNode::ReplicateNode(std::shared_ptr<const GradientLayout> layout, std::size_t replicas)
    : Node("replicate", static_cast<std::uint32_t>(layout->parameters().size() * replicas)),
      layout_(std::move(layout)),
      replicas_(replicas) {
  connect(layout_->parameters());
  set_leaf_depth();  // runs after all that the first replica adds to the parameters' gradients
}

// The block with the gradient of a replica's parameter.
View& ReplicateNode::block(std::size_t replica, std::size_t parameter) {
  const std::lock_guard lock(mutex_);
  if (blocks_.empty()) {
    blocks_ = layout_->take_blocks(replicas_);
    has_blocks_of_step_ = tandem::detail::step_recorder() != nullptr;
  }
  return blocks_[replica][layout_->places()[parameter].store.get()];
}

// Called only on the lane of the replica's device.
View ReplicateNode::gradient_memory(std::uint32_t i) {
  const std::size_t parameter = i % layout_->parameters().size();
  const ParameterStore::Place& place = layout_->places()[parameter];
  const auto [offset, numel, padded] = segment_at(place);
  View& whole = block(i / layout_->parameters().size(), parameter);
  if (!whole.defined()) {
    whole = tandem::detail::empty_view(place.store->values().sizes, output(i).dtype, output(i).device);
  }
  if (padded > numel) {
    tandem::detail::fill(tandem::detail::narrow(whole, 0, offset + numel, padded - numel), 0);
  }
  return *tandem::detail::try_reshape(tandem::detail::narrow(whole, 0, offset, numel), output(i).sizes);
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
                            std::ranges::equal(parts, next.parts, {}, &View::defined, &View::defined);
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

  void add() const {
    Accumulate accumulate = to.accumulate;
    for (const View& part : parts) {
      if (part.defined()) {
        tandem::detail::copy(to.view, part, accumulate);
        accumulate = Accumulate::yes;
      }
    }
  }
};

ReplicateNode::Sum ReplicateNode::sum_of(Gradients& gradients, std::size_t parameter) {
  const auto input = static_cast<std::uint32_t>(parameter);
  Sum sum;
  bool any = false;
  for (std::size_t r = 0; r < replicas_; ++r) {
    sum.parts.push_back(gradients.output(static_cast<std::uint32_t>(r * layout_->parameters().size() + parameter)));
    any = any || sum.parts.back().defined();
  }
  if (!any || !gradients.wants(input)) {
    return {};
  }
  const ParameterStore::Place& place = layout_->places()[parameter];
  const auto [offset, numel, padded] = segment_at(place);
  const View home = tandem::detail::narrow(place.store->gradients(), 0, offset, padded);
  sum.to = gradients.destination(input);
  sum.joins = sum.to.view.data() == home.data();
  for (std::size_t r = 0; r < replicas_; ++r) {
    const View& part = sum.parts[r];
    sum.joins = sum.joins &&
                (!part.defined() || (part.storage.get() == block(r, parameter).storage.get() && part.offset == offset));
  }
  if (sum.joins) {
    sum.to.view = home;
    for (std::size_t r = 0; r < replicas_; ++r) {
      if (sum.parts[r].defined()) {
        sum.parts[r] = tandem::detail::narrow(block(r, parameter), 0, offset, padded);
      }
    }
  }
  return sum;
}

void ReplicateNode::apply(Gradients& gradients) {
  const SpanScope timed(Phase::reduce);
  Sum sum;
  for (const std::size_t parameter : layout_->order()) {
    Sum next = sum_of(gradients, parameter);
    if (!next.parts.empty() && !sum.extend(next)) {
      sum.add();
      sum = std::move(next);
    }
  }
  sum.add();
  if (GradientLayout::Blocks blocks = std::exchange(blocks_, {}); !blocks.empty() && !has_blocks_of_step_) {
    layout_->give_back(std::move(blocks));
  }
}

}  // namespace tandem::inline v0::parallel

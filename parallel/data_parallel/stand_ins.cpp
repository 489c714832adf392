#include <tandem/parallel/data_parallel/stand_ins.h>

#include <algorithm>
#include <utility>

#include <tandem/core/thread_state.h>
#include <tandem/tensor/raw.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::parallel {

using tandem::detail::View;

namespace {

// Memory that outlives a step, even if this thread records the step.
View lasting_view(const Shape& sizes, DType dtype, Device device) {
  core::ThreadState state = core::thread_state();
  state.memory_use = core::MemoryUse::parameters;
  state.recorder = nullptr;
  const core::ThreadStateScope unrecorded(state);
  return tandem::detail::empty_view(sizes, dtype, device);
}

}  // namespace

bool StandIns::StandIn::is_of(const View& slot) const {
  return value.defined() && source.storage.get() == slot.storage.get() && source.offset == slot.offset &&
         source.dtype == slot.dtype && source.sizes == slot.sizes;
}

bool StandIns::StandIn::is_equal_to(const View& slot) const {
  return is_of(slot) && source_version == slot.storage->version() && own_version == value.raw().storage->version();
}

void StandIns::StandIn::note(const View& slot) {
  source = slot;
  source_version = slot.storage->version();
  own_version = value.raw().storage->version();
}

void StandIns::share(const std::vector<Tensor>& slots) {
  all_.resize(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (StandIn& there = all_[i]; !there.is_of(slots[i].raw())) {
      there.value = Tensor(tandem::detail::seen_from(device_, slots[i].raw()));
      there.note(slots[i].raw());
    }
  }
}

std::int64_t StandIns::copy(const std::vector<Tensor>& slots) {
  all_.resize(slots.size());
  std::vector<std::size_t> changed;
  std::int64_t bytes = 0;
  const bool copies_all = tandem::detail::step_recorder() != nullptr;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const View& slot = slots[i].raw();
    if (copies_all || !all_[i].is_equal_to(slot)) {
      if (!all_[i].is_of(slot)) {
        make_place(all_[i], slots[i]);
      }
      changed.push_back(i);
      bytes += slot.numel() * static_cast<std::int64_t>(item_size(slot.dtype));
    }
  }
  const auto place = [&](std::size_t i) { return std::pair(all_[i].place.store.get(), all_[i].place.segment); };
  std::ranges::stable_sort(changed, {}, place);
  for (auto first = changed.begin(); first != changed.end();) {
    const auto gap = std::adjacent_find(first, changed.end(), [&](std::size_t a, std::size_t b) {
      const auto [store, segment] = place(a);
      return store == nullptr || place(b) != std::pair(store, segment + 1);
    });
    const auto last = gap == changed.end() ? gap : gap + 1;
    copy_stretch({first, last}, slots);
    first = last;
  }
  return bytes;
}

// Copies one slot, or several that are neighbours in a store.
void StandIns::copy_stretch(std::span<const std::size_t> members, const std::vector<Tensor>& slots) {
  if (members.size() == 1) {
    tandem::detail::copy(all_[members[0]].value.raw(), slots[members[0]].raw());
  } else {
    const auto& [store, first] = all_[members.front()].place;
    const ParameterStore::Segment& begin = store->segments()[first];
    const ParameterStore::Segment& end = store->segments()[all_[members.back()].place.segment];
    const auto stretch = [&](const View& values) {
      return tandem::detail::narrow(values, 0, begin.offset, end.offset + end.padded - begin.offset);
    };
    for (const std::size_t i : members) {
      slots[i].raw().data();  // asks the guard, which the block has not
    }
    tandem::detail::copy(stretch(block_of(store)), stretch(store->values()));
    for (const std::size_t i : members) {
      all_[i].value.raw().storage->bump_version();
    }
  }
  for (const std::size_t i : members) {
    all_[i].note(slots[i].raw());
  }
}

void StandIns::make_place(StandIn& there, const Tensor& slot) {
  there.place = ParameterStore::find(slot);
  if (const auto& [store, segment] = there.place; store != nullptr) {
    there.value = Tensor(ParameterStore::segment_view(block_of(store), store->segments()[segment], slot.shape()));
    return;
  }
  there.value = Tensor(lasting_view(slot.shape(), slot.dtype(), device_));
}

const View& StandIns::block_of(const std::shared_ptr<ParameterStore>& store) {
  if (const auto known = blocks_.find(store); known != blocks_.end()) {
    return known->second;
  }
  std::erase_if(blocks_, [&](const auto& block) {  // of a store that holds no slot any more
    return std::ranges::none_of(all_, [&](const StandIn& s) { return s.place.store == block.first; });
  });
  return blocks_.emplace(store, lasting_view(store->values().sizes, store->dtype(), device_)).first->second;
}

}  // namespace tandem::inline v0::parallel

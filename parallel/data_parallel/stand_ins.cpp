#include <tandem/parallel/data_parallel/stand_ins.h>

#include <algorithm>

#include <tandem/core/thread_state.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

using tandem::detail::View;

bool StandIns::StandIn::is_of(const View& slot) const {
  return source.get() == slot.storage.get() && offset == slot.offset && value.defined() &&
         value.dtype() == slot.dtype && value.shape() == slot.sizes;
}

bool StandIns::StandIn::is_equal_to(const View& slot) const {
  return is_of(slot) && source_version == slot.storage->version() && own_version == value.raw().storage->version();
}

void StandIns::StandIn::note(const View& slot) {
  source = slot.storage;
  offset = slot.offset;
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

/// Changed slots: one, or several neighbours in a store.
struct StandIns::Run {
  std::vector<std::size_t> members;
  std::shared_ptr<ParameterStore> store;  // null for a slot that is in no store
  std::int64_t begin = 0, end = 0;        // range in the store

  bool extend(std::size_t slot, const ParameterStore::Place& place) {
    if (store == nullptr || place.store != store) {
      return false;
    }
    const auto [offset, numel, padded] = store->segments()[place.segment];
    if (offset == end) {
      end = offset + padded;
    } else if (offset + padded == begin) {
      begin = offset;
    } else {
      return false;
    }
    members.push_back(slot);
    return true;
  }
};

std::int64_t StandIns::copy(const std::vector<Tensor>& slots) {
  all_.resize(slots.size());
  std::vector<Run> runs;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    StandIn& there = all_[i];
    if (there.is_equal_to(slots[i].raw())) {
      continue;
    }
    if (!there.is_of(slots[i].raw())) {
      make_place(there, slots[i]);
    }
    if (std::none_of(runs.begin(), runs.end(), [&](Run& run) { return run.extend(i, there.place); })) {
      Run& run = runs.emplace_back(Run{{i}, there.place.store});
      if (run.store != nullptr) {
        const ParameterStore::Segment& segment = run.store->segments()[there.place.segment];
        run.begin = segment.offset;
        run.end = segment.offset + segment.padded;
      }
    }
  }
  std::int64_t bytes = 0;
  for (Run& run : runs) {
    bytes += copy_run(run, slots);
  }
  return bytes;
}

std::int64_t StandIns::copy_run(Run& run, const std::vector<Tensor>& slots) {
  if (run.members.size() == 1) {
    const std::size_t i = run.members.front();
    tandem::detail::copy(all_[i].value.raw(), slots[i].raw());
  } else {
    const auto whole = [&](const View& values) {
      return tandem::detail::narrow(values, 0, run.begin, run.end - run.begin);
    };
    tandem::detail::copy(whole(block_of(run.store).values), whole(run.store->values()));
  }
  std::int64_t bytes = 0;
  for (const std::size_t i : run.members) {
    const View& slot = slots[i].raw();
    if (run.members.size() > 1) {
      all_[i].value.raw().storage->bump_version();
    }
    all_[i].note(slot);
    bytes += slot.numel() * static_cast<std::int64_t>(item_size(slot.dtype));
  }
  return bytes;
}

void StandIns::make_place(StandIn& there, const Tensor& slot) {
  there.place = ParameterStore::find(slot);
  if (const auto& [store, segment] = there.place; store != nullptr) {
    there.value =
        Tensor(ParameterStore::segment_view(block_of(store).values, store->segments()[segment], slot.shape()));
    return;
  }
  const core::MemoryUseScope counted(core::MemoryUse::parameters);
  there.value = Tensor(tandem::detail::empty_view(slot.shape(), slot.dtype(), device_));
}

StandIns::Block& StandIns::block_of(const std::shared_ptr<ParameterStore>& store) {
  const auto known =
      std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) { return block.store == store; });
  if (known != blocks_.end()) {
    return *known;
  }
  // Drop the blocks of stores that hold no slot any more.
  std::erase_if(blocks_, [&](const Block& block) {
    return std::none_of(all_.begin(), all_.end(), [&](const StandIn& s) { return s.place.store == block.store; });
  });
  const core::MemoryUseScope counted(core::MemoryUse::parameters);
  const View values = tandem::detail::empty_view(store->values().sizes, store->dtype(), device_);
  return blocks_.emplace_back(Block{store, values});
}

}  // namespace tandem::inline v0::parallel

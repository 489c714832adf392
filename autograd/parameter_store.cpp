#include <tandem/autograd/parameter_store.h>

#include <algorithm>
#include <utility>

#include <tandem/autograd/node.h>
#include <tandem/core/check.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0 {

namespace {

detail::View counted_view(core::MemoryUse use, std::int64_t count, DType dtype, Device device) {
  const core::MemoryUseScope counted(use);
  return detail::empty_view({count}, dtype, device);
}

}  // namespace

void ParameterStore::ensure(const std::vector<Tensor>& parameters) {
  std::vector<std::vector<Tensor>> groups;
  for (const Tensor& parameter : parameters) {
    autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
    check<ConfigError>(leaf != nullptr, "ParameterStore: a parameter must be a leaf that requires a gradient");
    if (leaf->place.store) {
      continue;
    }
    const auto fits = [&](const std::vector<Tensor>& group) {
      return group[0].dtype() == parameter.dtype() && group[0].device() == parameter.device();
    };
    auto group = std::find_if(groups.begin(), groups.end(), fits);
    if (group == groups.end()) {
      group = groups.emplace(groups.end());
    }
    const bool known = std::any_of(group->begin(), group->end(),
                                   [&](const Tensor& t) { return t.unresolved() == parameter.unresolved(); });
    if (!known) {
      group->push_back(parameter);
    }
  }
  for (const auto& group : groups) {
    pack(group);
  }
}

void ParameterStore::pack(const std::vector<Tensor>& parameters) {
  auto store = std::make_shared<ParameterStore>();
  const DType dtype = parameters[0].dtype();
  const std::int64_t align = kAlignment / static_cast<std::int64_t>(item_size(dtype));
  std::int64_t total = 0;
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    const std::int64_t numel = it->numel();
    const std::int64_t padded = (numel + align - 1) / align * align;
    store->segments_.push_back({total, numel, padded});
    total += padded;
  }
  store->values_ = counted_view(core::MemoryUse::parameters, total, dtype, parameters[0].device());
  store->gradients_ = counted_view(core::MemoryUse::gradients, total, dtype, parameters[0].device());
  detail::fill(store->values_, 0);
  detail::fill(store->gradients_, 0);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    detail::TensorImpl& impl = *parameters[parameters.size() - 1 - i].unresolved();
    autograd::Leaf* leaf = autograd::leaf_of(impl);
    detail::View values = segment_view(store->values_, store->segments_[i], impl.view.sizes);
    detail::copy(values, impl.view);
    leaf->move_elements(std::move(values));
    impl.history_version = impl.view.storage->version();
    leaf->set_home(segment_view(store->gradients_, store->segments_[i], impl.view.sizes));
    leaf->place = {store, i};
  }
}

detail::View ParameterStore::segment_view(const detail::View& flat, const Segment& segment, const Shape& sizes) {
  const std::size_t item = item_size(flat.dtype);
  detail::View view;
  view.storage = detail::Storage::segment(flat.storage, static_cast<std::size_t>(segment.offset) * item,
                                          static_cast<std::size_t>(segment.numel) * item);
  view.dtype = flat.dtype;
  view.sizes = sizes;
  view.strides = contiguous_strides(sizes);
  return view;
}

ParameterStore::Place ParameterStore::find(const Tensor& parameter) {
  const autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
  return leaf != nullptr ? leaf->place : Place{};
}

namespace detail {

ParameterRun single_run(const Tensor& parameter, std::size_t index) {
  const TensorImpl& impl = *parameter.unresolved();
  ParameterRun run{index, index + 1, -1, impl.view.dtype, impl.view.device(), nullptr, nullptr};
  autograd::Leaf* leaf = autograd::leaf_of(impl);
  if (leaf != nullptr) {
    leaf->note_use(false);
  }
  if (leaf == nullptr || !leaf->fresh()) {
    return run;
  }
  const std::int64_t whole =
      leaf->place.store ? leaf->place.store->segments()[leaf->place.segment].padded : impl.view.numel();
  const bool is_shared_out = leaf->part.by != nullptr;
  const std::int64_t begin = (is_shared_out ? leaf->part.begin : 0) * static_cast<std::int64_t>(item_size(run.dtype));
  run.values = static_cast<std::byte*>(is_shared_out ? impl.view.part_data() : impl.view.data()) + begin;
  run.gradients = static_cast<std::byte*>(leaf->raw_grad().data()) + begin;
  run.numel = is_shared_out ? leaf->part.size() : whole;
  return run;
}

bool extend(ParameterRun& run, const ParameterRun& next) {
  const auto bytes = run.numel * static_cast<std::int64_t>(item_size(run.dtype));
  const bool follows = static_cast<std::byte*>(run.values) + bytes == next.values &&
                       static_cast<std::byte*>(run.gradients) + bytes == next.gradients;
  if (run.dtype != next.dtype || run.device != next.device || !(follows || run.numel == 0 || next.numel == 0)) {
    return false;
  }
  if (run.numel == 0) {
    run.values = next.values;
    run.gradients = next.gradients;
  }
  run.numel += next.numel;
  run.last = next.last;
  return true;
}

}  // namespace detail

std::vector<Tensor> sorted_by_place(const std::vector<Tensor>& parameters) {
  std::vector<const ParameterStore*> met;
  std::vector<std::pair<std::pair<std::size_t, std::size_t>, Tensor>> keyed;
  keyed.reserve(parameters.size());
  for (const Tensor& parameter : parameters) {
    const ParameterStore::Place place = ParameterStore::find(parameter);
    const auto found = std::find(met.begin(), met.end(), place.store.get());
    keyed.push_back({{static_cast<std::size_t>(found - met.begin()), place.segment}, parameter});
    if (found == met.end()) {
      met.push_back(place.store.get());
    }
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Tensor> sorted;
  sorted.reserve(keyed.size());
  for (auto& [key, parameter] : keyed) {
    sorted.push_back(std::move(parameter));
  }
  return sorted;
}

}  // namespace tandem::inline v0
